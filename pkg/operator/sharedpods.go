package operator

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// sharedPods is a Reader that gets pods without a deep copy. The callers do not modify them.
type sharedPods struct {
	client.Reader

	// pod returns a pod of the cache.
	pod func(types.NamespacedName) (*corev1.Pod, bool)
}

// Get implements client.Reader.
func (r sharedPods) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	into, isPod := object.(*corev1.Pod)
	if !isPod {
		return r.Reader.Get(ctx, key, object, options...)
	}
	shared, found := r.pod(key)
	if !found {
		return apierrors.NewNotFound(corev1.Resource("pods"), key.Name)
	}
	*into = *shared
	return nil
}
