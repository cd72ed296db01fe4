package podtransitionrule

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// TestAPIStatusWriter shows that the resourceVersion of the object that was read is the lock.
func TestAPIStatusWriter(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := appsv1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	rule := &appsv1alpha1.PodTransitionRule{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(rule).WithStatusSubresource(rule).Build()
	read := &appsv1alpha1.PodTransitionRule{}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(rule), read); err != nil {
		t.Fatal(err)
	}
	w := APIStatusWriter{Client: c}

	read.Status.Waiting = 1
	stored, err := w.WriteStatus(t.Context(), read)
	if err != nil {
		t.Fatal(err)
	}
	if stored.ResourceVersion == read.ResourceVersion || stored.Status.Waiting != 1 {
		t.Errorf("stored %s with %d waiting, read %s", stored.ResourceVersion, stored.Status.Waiting, read.ResourceVersion)
	}
	if _, err := w.WriteStatus(t.Context(), read); !apierrors.IsConflict(err) {
		t.Errorf("an older version: got %v, want a conflict", err)
	}
	if err := c.Delete(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteStatus(t.Context(), stored); !apierrors.IsNotFound(err) {
		t.Errorf("one that is gone: got %v, want not found", err)
	}
}
