package podoperation

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/podoperation"
)

// snapshot reads the targets of an operation from the cache, which holds the pods under PodOps. The pods
// are shared with the cache: every write works on a copy. isFull is whether as many operations of the
// namespace are in progress as may be.
func (r *Reconciler) snapshot(ctx context.Context, operation *appsv1alpha1.PodOperation, isFull bool) (podoperation.Snapshot, error) {
	snapshot := podoperation.Snapshot{Operation: operation, Full: isFull, Now: r.clock.Now()}
	owned, err := r.replicaSets(ctx, operation)
	if err != nil {
		return snapshot, err
	}
	selector, err := podoperation.NewSelector(operation, owned)
	if err != nil {
		snapshot.Invalid = err.Error()
	}
	pods := &corev1.PodList{}
	if err := r.client.List(ctx, pods, client.InNamespace(operation.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return snapshot, fmt.Errorf("listing pods: %w", err)
	}
	for i := range pods.Items {
		if selector.Includes(&pods.Items[i]) {
			snapshot.Pods = append(snapshot.Pods, &pods.Items[i])
		}
	}
	return snapshot, nil
}

// replicaSets returns the UIDs of the ReplicaSets whose Deployment owns the targets.
func (r *Reconciler) replicaSets(ctx context.Context, operation *appsv1alpha1.PodOperation) (sets.Set[types.UID], error) {
	owner := operation.Spec.Target.Owner
	if owner == nil || owner.Kind != podoperation.KindDeployment {
		return nil, nil
	}
	list := &appsv1.ReplicaSetList{}
	if err := r.client.List(ctx, list, client.InNamespace(operation.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing ReplicaSets: %w", err)
	}
	owned := sets.New[types.UID]()
	for i := range list.Items {
		controller := metav1.GetControllerOfNoCopy(&list.Items[i])
		if controller != nil && controller.Kind == podoperation.KindDeployment && controller.Name == owner.Name {
			owned.Insert(list.Items[i].UID)
		}
	}
	return owned, nil
}

// isActive returns a function that reports whether an operation of a namespace exists and has not ended. If that cannot
// be read, it counts as active.
func (r *Reconciler) isActive(ctx context.Context, namespace string) func(types.UID) bool {
	return func(uid types.UID) bool {
		found, err := r.byUID(ctx, namespace, uid)
		return err != nil || len(found) > 0 && found[0].Status.CompletionTime == nil
	}
}
