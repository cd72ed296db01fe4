package operator

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// TestSharedPods reads pods of the cache as they are, and other objects from the reader beneath.
func TestSharedPods(t *testing.T) {
	cached := production()
	key := client.ObjectKeyFromObject(cached)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	reader := sharedPods{fake.NewClientBuilder().WithObjects(service).Build(), func(read types.NamespacedName) (*corev1.Pod, bool) {
		return cached, read == key
	}}
	pod := &corev1.Pod{}
	if err := reader.Get(t.Context(), key, pod); err != nil || pod.Name != cached.Name || &pod.Spec.Containers[0] != &cached.Spec.Containers[0] {
		t.Errorf("got %s, %v, want the shared pod", pod.Name, err)
	}
	if err := reader.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "none"}, pod); !apierrors.IsNotFound(err) {
		t.Errorf("got %v, want NotFound", err)
	}
	if err := reader.Get(t.Context(), client.ObjectKeyFromObject(service), &corev1.Service{}); err != nil {
		t.Error(err)
	}
}
