package podtransitionrule

import (
	"cmp"
	"context"
	"runtime"
	"time"

	"k8s.io/utils/clock"

	"github.com/podops-dev/podops/pkg/cputime"
	"github.com/podops-dev/podops/pkg/lanes"
	"github.com/podops-dev/podops/pkg/opa"
)

const (
	// defaultRoundBudget is what a round takes at most by default.
	defaultRoundBudget = 2 * time.Second

	// defaultWorkers is how many namespaces are decided at once by default.
	defaultWorkers = 10

	// slowShare is the part of the workers that the slow lane may hold: one in four.
	slowShare = 4

	// heldShare is how much time a round may hold a worker for the price of CPU time: there
	// are many workers, and few cores.
	heldShare = 20
)

// turn is what one round may use: time, a lane among other namespaces, memory, and the slot for background
// writes. It is used by one goroutine.
type turn struct {
	lanes     *lanes.Lanes
	clock     clock.PassiveClock
	namespace string
	began     time.Time
	budget    time.Duration
	lane      lanes.Lane

	// governed reports whether the namespace still has PodTransitionRules.
	governed func() bool

	// used is the CPU time of the round; charged is the part of it that lanes was given.
	used, charged time.Duration

	// held is how many bytes of findings, reasons and open requests the round holds, and most is how
	// many it may hold.
	held, most int64

	// slot is the slot for background writes.
	slot slot

	// cause is why the round gave way; empty while it has not.
	cause gaveWay
}

// newLanes returns the lanes of so many workers.
func newLanes(workers int) *lanes.Lanes {
	return lanes.New(lanes.Options{Places: max(1, workers/slowShare), Rate: coreShare * float64(runtime.GOMAXPROCS(0))})
}

// coreShare is the part of all cores that namespaces may use together before they are moved to
// the slow lane.
const coreShare = 0.25

// gaveWay is why a round ended before all was evaluated.
type gaveWay string

const (
	// gaveWayBudget: the budget of the round was used up.
	gaveWayBudget gaveWay = "budget"

	// gaveWayShare: the namespace had used its share of CPU time, and the slow lane was full.
	gaveWayShare gaveWay = "share"

	// gaveWayMemory: the rules and waiting requests of the namespace were too many to be held at once.
	gaveWayMemory gaveWay = "memory"

	// gaveWayGone: the namespace had no PodTransitionRule any more, or the manager stopped.
	gaveWayGone gaveWay = "gone"
)

// begin admits a round. Without a place for it the namespace is queued once there is one.
func (r *Reconciler) begin(namespace string) (*turn, bool) {
	now := r.clock.Now()
	lane, ok := r.lanes.Enter(namespace, now)
	r.metrics.parked(r.lanes.Parked())
	if !ok {
		return nil, false
	}
	return &turn{
		lanes: r.lanes, clock: r.clock, namespace: namespace, began: now, budget: r.budget, lane: lane, most: r.roundBytes,
		slot:     slot{shared: &r.background},
		governed: func() bool { return r.index.Governed(namespace) },
	}, true
}

// end charges the namespace with the round, and queues the namespaces that it made room for.
func (r *Reconciler) end(t *turn) {
	t.slot.release()
	now := r.clock.Now()
	used := max(t.used, now.Sub(t.began)/heldShare)
	for _, next := range r.lanes.Leave(t.namespace, used-t.charged, now) {
		r.wake(next)
	}
	r.metrics.parked(r.lanes.Parked())
	if t.cause != "" {
		r.metrics.gaveWay(t.cause)
	}
}

// hasTime reports whether a part of the budget of the round is left.
func (t *turn) hasTime(ctx context.Context, part float64) bool {
	if t.cause == gaveWayGone {
		return false
	}
	if ctx.Err() != nil || !t.governed() {
		t.cause = gaveWayGone
		return false
	}
	if t.clock.Since(t.began) >= time.Duration(part*float64(t.budget)) {
		t.cause = cmp.Or(t.cause, gaveWayBudget)
		return false
	}
	return true
}

// goesOn reports whether the round may evaluate more modules, within a part of its budget and
// the share of its namespace. Once the share is used up, the round never goes on.
func (t *turn) goesOn(ctx context.Context, part float64) bool {
	if t.cause == gaveWayShare || !t.hasTime(ctx, part) {
		return false
	}
	if t.used == t.charged {
		return true
	}
	lane, ok := t.lanes.GoOn(t.namespace, t.used-t.charged, t.clock.Now())
	t.lane, t.charged = lane, t.used
	if !ok {
		t.cause = gaveWayShare
	}
	return ok
}

// mayCompile reports whether the round may compile a module, which takes a place in the slow
// lane: one can take seconds.
func (t *turn) mayCompile(ctx context.Context) bool {
	if !t.goesOn(ctx, partForModules) {
		return false
	}
	if !t.lanes.Demand(t.namespace) {
		t.cause = gaveWayShare
		return false
	}
	t.lane = lanes.Slow
	return true
}

// slice returns a context for evaluations up to the next look at whether the round goes on.
func (t *turn) slice(ctx context.Context) (context.Context, context.CancelFunc) {
	if t.lane == lanes.Slow {
		return context.WithTimeout(t.inLane(ctx), slowSlice)
	}
	return context.WithTimeout(ctx, fastSlice)
}

// inLane returns a context for evaluations in the lane of the round.
func (t *turn) inLane(ctx context.Context) context.Context {
	if t.lane == lanes.Slow {
		return opa.WithSlowLane(ctx)
	}
	return ctx
}

// Slices of a round. What a namespace uses in one before it is known to be slow is what others
// have to wait for.
const (
	fastSlice = 50 * time.Millisecond
	slowSlice = 250 * time.Millisecond
)

// Parts of the budget of a round. What comes later has time of its own.
const (
	partForModules  = 0.5
	partForRules    = 0.75
	partForRechecks = 1
)

// holds reports whether the round may hold so many more bytes, and counts them then.
func (t *turn) holds(bytes int64) bool {
	if t.held+bytes > t.most {
		return false
	}
	t.held += bytes
	return true
}

// charge adds CPU time that the round used.
func (t *turn) charge(used time.Duration) { t.used += used }

// measure charges the round with the CPU time of what is done in this goroutine.
func (t *turn) measure(what func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	watch := cputime.Start()
	what()
	t.charge(watch.Used())
}
