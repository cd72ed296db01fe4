package deferreddelete

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/core/replicasetscale"
	"github.com/podops-dev/podops/pkg/state/replicasetpods"
)

// owners reads ReplicaSets and their pods.
type owners struct {
	reader replicasetpods.Reader
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
	return o.planFor(ctx, set)
}

func (o owners) planFor(ctx context.Context, set *appsv1.ReplicaSet) (deferreddelete.Plan, error) {
	pods, err := o.reader.Pods(ctx, set.Namespace, set.UID)
	if err != nil {
		return deferreddelete.Plan{}, fmt.Errorf("ReplicaSet %s: %w", set.Name, err)
	}
	workload, err := o.reader.Workload(ctx, set)
	if err != nil {
		return deferreddelete.Plan{}, fmt.Errorf("ReplicaSet %s: %w", set.Name, err)
	}
	return deferreddelete.PlanFor(workload.Target(set), replicasetscale.Others(set, pods), pods), nil
}
