package podoperation

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// isFull reports whether as many other operations of the namespace are in progress as may be. An operation that may start
// counts as started until release, or until the cache shows it.
func (r *Reconciler) isFull(ctx context.Context, operation *appsv1alpha1.PodOperation) (bool, error) {
	if operation.Status.StartTime != nil {
		return false, nil
	}
	r.memory.mu.Lock()
	defer r.memory.mu.Unlock()
	started, err := r.started(ctx, operation.Namespace)
	if err != nil {
		return false, err
	}
	reserved, isActive := sets.New[types.UID](), r.isActive(ctx, operation.Namespace)
	for uid := range r.memory.starts[operation.Namespace] {
		isShown := slices.ContainsFunc(started, func(other appsv1alpha1.PodOperation) bool { return other.UID == uid })
		if !isShown && isActive(uid) {
			reserved.Insert(uid)
		}
	}
	full := !reserved.Has(operation.UID) && len(reserved)+len(started) >= appsv1alpha1.MaxActivePodOperations
	if !full {
		reserved.Insert(operation.UID)
	}
	r.memory.setStarts(operation.Namespace, reserved)
	return full, nil
}
