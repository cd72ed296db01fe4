package deferreddelete

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/pkg/deferreddelete"
)

// ControllerUIDField is the name of the cache index of pods by the UID of their
// controller.
const ControllerUIDField = "podops.controllerUID"

// IndexByController is the indexer for ControllerUIDField.
func IndexByController(object client.Object) []string {
	controller := metav1.GetControllerOf(object)
	if controller == nil {
		return nil
	}
	return []string{string(controller.UID)}
}

// owners looks at ReplicaSets and their pods.
type owners struct {
	reader client.Reader
}

// promises compares the promised pods of a pod's owner with what the owner wants. An
// owner that is gone or going wants nothing.
func (o owners) promises(ctx context.Context, pod *corev1.Pod) (deferreddelete.Promises, error) {
	controller := metav1.GetControllerOf(pod)
	if controller == nil || !deferreddelete.HeldFor(pod) {
		return deferreddelete.Promises{}, nil
	}
	set := &appsv1.ReplicaSet{}
	err := o.reader.Get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: controller.Name}, set)
	if apierrors.IsNotFound(err) {
		return deferreddelete.Promises{}, nil
	}
	if err != nil {
		return deferreddelete.Promises{}, fmt.Errorf("reading ReplicaSet %s: %w", controller.Name, err)
	}
	if set.UID != controller.UID || set.DeletionTimestamp != nil {
		return deferreddelete.Promises{}, nil
	}
	return o.promisesOf(ctx, set)
}

func (o owners) promisesOf(ctx context.Context, set *appsv1.ReplicaSet) (deferreddelete.Promises, error) {
	list := &corev1.PodList{}
	if err := o.reader.List(ctx, list, client.InNamespace(set.Namespace), client.MatchingFields{ControllerUIDField: string(set.UID)}); err != nil {
		return deferreddelete.Promises{}, fmt.Errorf("listing pods of ReplicaSet %s: %w", set.Name, err)
	}
	pods := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		pods[i] = &list.Items[i]
	}
	return deferreddelete.Keep(wanted(set), pods), nil
}

func wanted(set *appsv1.ReplicaSet) int {
	if set.Spec.Replicas == nil {
		return 1
	}
	return int(*set.Spec.Replicas)
}
