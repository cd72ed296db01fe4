package podtransitionrule

import (
	"runtime"

	"github.com/podops-dev/podops/pkg/engine/evaluation"
	"github.com/podops-dev/podops/pkg/runtime/lanes"
)

const (
	// defaultWorkers is the number of namespaces that are evaluated at once by default.
	defaultWorkers = 10

	// slowShare is the part of the workers that the slow lane may hold: a quarter.
	slowShare = 4
)

// newLanes returns the lanes of so many workers.
func newLanes(workers int) *lanes.Lanes {
	return lanes.New(lanes.Options{Places: max(1, workers/slowShare), Rate: coreShare * float64(runtime.GOMAXPROCS(0))})
}

// coreShare is the part of all cores that namespaces may use together before they are moved to
// the slow lane.
const coreShare = 0.25

// turn has the resources of a round, and the slot for background writes.
type turn struct {
	*evaluation.Turn
	slot slot
}

// begin admits a round. Without a free worker the namespace is queued when a worker is free.
func (r *Reconciler) begin(namespace string) (*turn, bool) {
	lane, ok := r.lanes.Enter(namespace, r.clock.Now())
	r.metrics.parked(r.lanes.Parked())
	if !ok {
		return nil, false
	}
	return &turn{slot: slot{shared: &r.background}, Turn: evaluation.NewTurn(evaluation.TurnOptions{
		Namespace: namespace, Clock: r.clock, Lanes: r.lanes, Lane: lane, Budget: r.budget, Memory: r.roundBytes, Remember: r.state.share(namespace),
		Governed: func() bool { return r.index.Governed(namespace) },
	})}, true
}

// end charges the namespace with the round, and queues the namespaces for which there is a place now.
func (r *Reconciler) end(t *turn) {
	t.slot.release()
	r.state.remember(t.Namespace())
	for _, next := range r.lanes.Leave(t.Namespace(), t.End(), r.clock.Now()) {
		r.wake(next)
	}
	r.metrics.parked(r.lanes.Parked())
	if t.Cause != "" {
		r.metrics.gaveWay(t.Cause)
	}
}
