package podoperation

import (
	"context"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// starts are the operations that this process starts, until the cache shows that they have started: workers that
// read a cache that is behind would start more operations than may be in progress. It is safe for concurrent use.
type starts struct {
	mu          sync.Mutex // held while the cache is read, so that no reading is older than a reservation
	byNamespace map[string]sets.Set[types.UID]
}

// isFull reports whether as many other operations of the namespace are in progress as may be. An operation that may start
// counts as started until release, or until the cache shows it.
func (r *Reconciler) isFull(ctx context.Context, operation *appsv1alpha1.PodOperation) (bool, error) {
	if operation.Status.StartTime != nil {
		return false, nil
	}
	r.starts.mu.Lock()
	defer r.starts.mu.Unlock()
	started, err := r.started(ctx, operation.Namespace)
	if err != nil {
		return false, err
	}
	reserved, isActive := sets.New[types.UID](), r.isActive(ctx, operation.Namespace)
	for uid := range r.starts.byNamespace[operation.Namespace] {
		isShown := slices.ContainsFunc(started, func(other appsv1alpha1.PodOperation) bool { return other.UID == uid })
		if !isShown && isActive(uid) {
			reserved.Insert(uid)
		}
	}
	full := !reserved.Has(operation.UID) && len(reserved)+len(started) >= appsv1alpha1.MaxActivePodOperations
	if !full {
		reserved.Insert(operation.UID)
	}
	r.starts.put(operation.Namespace, reserved)
	return full, nil
}

// release ends the reservation of an operation that does not start now.
func (s *starts) release(operation *appsv1alpha1.PodOperation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(operation.Namespace, s.byNamespace[operation.Namespace].Clone().Delete(operation.UID))
}

func (s *starts) put(namespace string, reserved sets.Set[types.UID]) {
	if len(reserved) == 0 {
		delete(s.byNamespace, namespace)
		return
	}
	s.byNamespace[namespace] = reserved
}
