package podindex

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/pkg/core/podstate"
	"github.com/podops-dev/podops/pkg/core/tracing"
)

// Observer is called with each change of where a pod stands, in the order of the changes.
type Observer interface {
	// Changed is called when a pod of a namespace stands elsewhere. The Standing of a pod that the Index does not
	// have is zero. It must not block, and must not call the Index.
	Changed(namespace string, pod types.UID, before, after podstate.Standing)
}

// BudgetObserver is called with each change of a PodDisruptionBudget's counts, in the order of the changes. It
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

// Tracer is called with each change of a pod that records when a lifecycle began.
type Tracer interface {
	// Changed is called with both versions of a pod; nil for a pod that the Index does not have. It must not block, and
	// must not call the Index.
	Changed(before, after *tracing.Pod)
}

// Trace sets the Tracer. It must be called before the informer of pods runs.
func (x *Index) Trace(tracer Tracer) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.tracer = tracer
}

// trace reports a change of a pod to the Tracer; nil for a pod that the Index does not have.
func (x *Index) trace(before, after *pod) {
	if x.tracer == nil || !before.isTraced() && !after.isTraced() {
		return
	}
	x.tracer.Changed(before.traced(), after.traced())
}

func (p *pod) isTraced() bool { return p != nil && tracing.IsRecorded(p.fact.Labels) }

// traced returns the part of a pod that its spans are derived from; nil for nil.
func (p *pod) traced() *tracing.Pod {
	if p == nil {
		return nil
	}
	traced := &tracing.Pod{
		Namespace: p.fact.Namespace, Name: p.fact.Name, UID: p.fact.UID, Labels: p.fact.Labels, Terminating: p.terminating(),
	}
	if owner := p.fact.Owner; owner.Name != "" {
		traced.Workload = owner.Kind + "/" + owner.Name
	}
	if p.object != nil {
		traced.Annotations = p.object.Annotations
	}
	return traced
}

// terminating returns when the deletion of the pod was requested; zero if it was not.
func (p *pod) terminating() time.Time {
	if p.standing.Phase != podstate.PhaseTerminating {
		return time.Time{}
	}
	return p.standing.Since
}
