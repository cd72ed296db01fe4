package evaluation

import (
	"cmp"
	"context"
	"time"

	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/runtime/lanes"
	"k8s.io/utils/clock"
)

const (
	// DefaultBudget is the time for which a round may compile and evaluate rules by default.
	DefaultBudget = 2 * time.Second

	// heldShare is the wall-clock time for which a round may hold a worker, as a multiple
	// of its CPU time: there are many workers, and few cores.
	heldShare = 20
)

// Turn has the resources that one round may use: time, a lane among other namespaces, and memory. It is used by
// one goroutine.
type Turn struct {
	lanes     *lanes.Lanes
	clock     clock.PassiveClock
	namespace string
	began     time.Time
	budget    time.Duration
	lane      lanes.Lane

	// governed reports whether the namespace still has PodTransitionRules.
	governed func() bool

	// used is the CPU time of the round; charged is the part of it that lanes has counted.
	used, charged time.Duration

	// held is how many bytes of findings, reasons and open requests the round holds, and most is how
	// many it may hold.
	held, most int64

	// remember is how many bytes the rules of the namespace may remember after the round.
	remember int64

	// Cause is the reason why the round gave way; empty while it has not.
	Cause Cause
}

// Cause is the reason why a round ended before all rules were evaluated.
type Cause string

const (
	// CauseBudget: the budget of the round was used up.
	CauseBudget Cause = "budget"

	// CauseShare: the namespace had used its share of CPU time, and the slow lane was full.
	CauseShare Cause = "share"

	// CauseMemory: the rules and waiting requests of the namespace were too many to be held at once.
	CauseMemory Cause = "memory"

	// CauseGone: the namespace had no PodTransitionRule any more, or the manager stopped.
	CauseGone Cause = "gone"
)

// Causes returns all causes.
func Causes() []Cause { return []Cause{CauseBudget, CauseShare, CauseMemory, CauseGone} }

// TurnOptions configure a Turn. All fields must be set.
type TurnOptions struct {
	Namespace string
	Clock     clock.PassiveClock

	// Lanes admitted Namespace to Lane.
	Lanes *lanes.Lanes
	Lane  lanes.Lane

	// Budget is the time for which the round may compile and evaluate rules.
	Budget time.Duration

	// Memory bounds the bytes of the round's findings.
	Memory int64

	// Remember bounds the bytes that the rules of the namespace remember after the round.
	Remember int64

	// Governed reports whether Namespace still has PodTransitionRules.
	Governed func() bool
}

// NewTurn returns the resources of a round that begins now.
func NewTurn(o TurnOptions) *Turn {
	return &Turn{
		lanes: o.Lanes, clock: o.Clock, namespace: o.Namespace, began: o.Clock.Now(), budget: o.Budget, lane: o.Lane, most: o.Memory, remember: o.Remember,
		governed: o.Governed,
	}
}

// End returns the CPU time of the round that its namespace is not yet charged with.
func (t *Turn) End() time.Duration {
	return max(t.used, t.clock.Since(t.began)/heldShare) - t.charged
}

// Namespace returns the namespace of the round.
func (t *Turn) Namespace() string { return t.namespace }

// hasTime reports whether the round has budget left.
func (t *Turn) hasTime(ctx context.Context, part float64) bool {
	if t.Cause == CauseGone {
		return false
	}
	if ctx.Err() != nil || !t.governed() {
		t.Cause = CauseGone
		return false
	}
	if t.clock.Since(t.began) >= time.Duration(part*float64(t.budget)) {
		t.Cause = cmp.Or(t.Cause, CauseBudget)
		return false
	}
	return true
}

// goesOn reports whether the round may evaluate more modules, within a part of its budget and
// the share of its namespace. Once the share is used up, the round does not continue.
func (t *Turn) goesOn(ctx context.Context, part float64) bool {
	if t.Cause == CauseShare || !t.hasTime(ctx, part) {
		return false
	}
	if t.used == t.charged {
		return true
	}
	lane, ok := t.lanes.GoOn(t.namespace, t.used-t.charged, t.clock.Now())
	t.lane, t.charged = lane, t.used
	if !ok {
		t.Cause = CauseShare
	}
	return ok
}

// mayCompile reports whether the round may compile a module, which takes a place in the slow
// lane: compiling can take seconds.
func (t *Turn) mayCompile(ctx context.Context) bool {
	if !t.goesOn(ctx, partForModules) {
		return false
	}
	if !t.lanes.EnterSlow(t.namespace) {
		t.Cause = CauseShare
		return false
	}
	t.lane = lanes.Slow
	return true
}

// slice returns a context for evaluations up to the next check whether the round continues.
func (t *Turn) slice(ctx context.Context) (context.Context, context.CancelFunc) {
	if t.lane == lanes.Slow {
		return context.WithTimeout(t.inLane(ctx), SlowSlice)
	}
	return context.WithTimeout(ctx, FastSlice)
}

// inLane returns a context for evaluations in the lane of the round.
func (t *Turn) inLane(ctx context.Context) context.Context {
	if t.lane == lanes.Slow {
		return opa.WithSlowLane(ctx)
	}
	return ctx
}

// Slices of a round. Other namespaces wait for as long as a namespace may compute before it counts
// as slow.
const (
	FastSlice = 50 * time.Millisecond
	SlowSlice = 250 * time.Millisecond
)

// Parts of a round's budget. Later steps of the round have time of their own.
const (
	partForModules  = 0.5
	partForRules    = 0.75
	partForRechecks = 1
)

// holds reports whether the round may hold so many more bytes, and counts them then.
func (t *Turn) holds(bytes int64) bool {
	if t.held+bytes > t.most {
		return false
	}
	t.held += bytes
	return true
}

// charge adds CPU time that the round used.
func (t *Turn) charge(used time.Duration) { t.used += used }

// measure returns a function that charges the round with the time since.
func (t *Turn) measure() (charge func()) {
	began := t.clock.Now()
	return func() { t.charge(t.clock.Since(began)) }
}

// Delays before the next round.
const (
	// RetryStale is the delay while something is missing that is expected at once: the watch has not
	// delivered the pods that a record requires, or the round had no time for all rules. The watch is usually
	// behind by milliseconds.
	RetryStale = 50 * time.Millisecond

	// RetryBackground is the delay when a background write is postponed (Slot).
	RetryBackground = 100 * time.Millisecond

	// RetryFailed is the delay after which rules are evaluated again that have failed. Usually the machine
	// was busy.
	RetryFailed = 5 * time.Second
)

// Bytes that a round holds for each request for which a rule is evaluated.
const (
	// findingBytes is the size of a finding. Each reason comes on top, with its texts.
	findingBytes = 160
	ReasonBytes  = 256

	// openBytes is the size of a module verdict.
	openBytes = 2*findingBytes + 128
)

// DefaultMemory is the number of these bytes that one round may hold by default. A round that would
// hold more keeps only the first reason of each request; users' modules for which it has no memory
// withhold with rule.CodeNotReached.
const DefaultMemory = 32 << 20
