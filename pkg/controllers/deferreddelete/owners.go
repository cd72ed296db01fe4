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

// IndexByController returns the UID of the controller of a pod, for the index ControllerUIDField.
func IndexByController(object client.Object) []string {
	controller := metav1.GetControllerOf(object)
	if controller == nil {
		return nil
	}
	return []string{string(controller.UID)}
}

// owners reads ReplicaSets and their pods.
type owners struct {
	reader client.Reader
}

// plan compares the deferred deletes of a pod's owner with its desired number of pods. An
// owner that is deleted or terminating deletes no pods.
func (o owners) plan(ctx context.Context, pod *corev1.Pod) (deferreddelete.Plan, error) {
	controller := metav1.GetControllerOf(pod)
	if controller == nil || !deferreddelete.OfReplicaSet(pod) {
		return deferreddelete.Plan{}, nil
	}
	set := &appsv1.ReplicaSet{}
	err := o.reader.Get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: controller.Name}, set)
	if apierrors.IsNotFound(err) {
		return deferreddelete.Plan{}, nil
	}
	if err != nil {
		return deferreddelete.Plan{}, fmt.Errorf("reading ReplicaSet %s: %w", controller.Name, err)
	}
	if set.UID != controller.UID || set.DeletionTimestamp != nil {
		return deferreddelete.Plan{}, nil
	}
	return o.planOf(ctx, set)
}

func (o owners) planOf(ctx context.Context, set *appsv1.ReplicaSet) (deferreddelete.Plan, error) {
	list := &corev1.PodList{}
	if err := o.reader.List(ctx, list, client.InNamespace(set.Namespace), client.MatchingFields{ControllerUIDField: string(set.UID)}); err != nil {
		return deferreddelete.Plan{}, fmt.Errorf("listing pods of ReplicaSet %s: %w", set.Name, err)
	}
	pods := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		pods[i] = &list.Items[i]
	}
	return deferreddelete.PlanFor(desired(set), pods), nil
}

func desired(set *appsv1.ReplicaSet) int {
	if set.Spec.Replicas == nil {
		return 1
	}
	return int(*set.Spec.Replicas)
}
