package podindex

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/pkg/podstate"
)

// Observer is called with each change of where a pod stands, in the order of the changes.
type Observer interface {
	// Changed is called when a pod of a namespace stands elsewhere. The Standing of a pod that the Index does not
	// have is zero. It must not block, and must not call the Index.
	Changed(namespace string, pod types.UID, before, after podstate.Standing)
}

// BudgetObserver is called with each change of the counts of a PodDisruptionBudget, in the order of the changes. It
// must not block, and must not call the Index.
type BudgetObserver interface {
	// BudgetChanged is called when a PodDisruptionBudget or a count of its pods has changed.
	BudgetChanged(counts DisruptionCounts)

	// BudgetDeleted is called when a PodDisruptionBudget was deleted.
	BudgetDeleted(budget types.NamespacedName)
}

// ObserveBudgets sets the BudgetObserver. It must be called before informers run.
func (x *Index) ObserveBudgets(observer BudgetObserver) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.budgetObserver = observer
}

// Observe sets the Observer. It must be called before the informer of pods runs.
func (x *Index) Observe(observer Observer) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.observer = observer
}

// observe reports a change of a pod to the Observer; nil for a pod that the Index does not have.
func (x *Index) observe(namespace string, before, after *pod) {
	if x.observer == nil {
		return
	}
	var uid types.UID
	var was, is podstate.Standing
	if before != nil {
		uid, was = before.fact.UID, before.standing
	}
	if after != nil {
		uid, is = after.fact.UID, after.standing
	}
	if was != is {
		x.observer.Changed(namespace, uid, was, is)
	}
}
