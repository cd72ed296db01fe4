package podfacts

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/runtime/fairshare"
)

// EventDrainTimedOut reports that a pod is operated on although its drain endpoint has not confirmed that no connection is
// left. It never changes.
const EventDrainTimedOut = "DrainTimedOut"

const (
	// drainEvery is the time from the end of a call to the next call to the same pod. The answer of a call is looked for after
	// firstDrainCheck, and then each drainCheck.
	drainEvery, firstDrainCheck, drainCheck = time.Second, 50 * time.Millisecond, 500 * time.Millisecond

	// drainPatience bounds the wait of a call for its turn, together with the call.
	drainPatience = 10 * time.Second

	// drainCalls is how many calls run at a time, drainCallsEach how many of one namespace.
	drainCalls, drainCallsEach = 64, 16

	// drainBytes bounds the memory of answers, drainEntryBytes is an entry with its longest answer. Beyond it the namespace with
	// the most of them loses its oldest, whose time-outs begin again.
	drainBytes, drainEntryBytes = 4 << 20, 256
)

// DrainCaller calls drain endpoints.
type DrainCaller interface {
	// Drain reports whether no connection is left on a pod with this address. Otherwise answer is what the endpoint does, as in
	// "answers 202".
	Drain(ctx context.Context, address string, endpoint lifecycle.DrainEndpoint) (drained bool, answer string)
}

// Drains calls the drain endpoints of pods whose traffic is off. It is safe for concurrent use.
type Drains struct {
	caller   DrainCaller
	recorder events.EventRecorder
	options  lifecycle.Options
	clock    clock.PassiveClock
	slots    *fairshare.Slots
	states   *fairshare.Cache[types.UID, drainState]
}

// drainState contains what a drain endpoint has answered while its pod prepares.
type drainState struct {
	prepares time.Time // since when, as its labels have it: an answer counts for this time only
	since    time.Time // the first call
	ended    time.Time // the last call; zero before
	calling  bool
	drained  bool
	late     bool // the time-out was reported
	answer   string
}

// NewDrains returns Drains with the waits of a manager.
func NewDrains(caller DrainCaller, recorder events.EventRecorder, options lifecycle.Options, clk clock.PassiveClock) *Drains {
	return &Drains{
		caller: caller, recorder: recorder, options: options, clock: clk,
		slots:  fairshare.NewSlots(fairshare.SlotOptions{Slots: drainCalls, Each: drainCallsEach}),
		states: fairshare.NewCache[types.UID, drainState](drainBytes),
	}
}

// observe adds to the facts of a pod with a drain endpoint its last answer, and begins a call if one is due.
func (d *Drains) observe(pod *corev1.Pod, facts *lifecycle.PodFacts) {
	now := d.clock.Now()
	if !lifecycle.Advance(*facts, lifecycle.Permits{}, d.options, now).WaitsForDrain {
		// Clients can connect, or nothing is to be done: an answer counts only between the two.
		d.states.Remove(pod.UID)
		return
	}
	if !runs(pod) {
		facts.Drained = true // no process has a connection
		return
	}
	prepares, _ := facts.PreparingSince()
	state, known := d.states.Get(pod.UID)
	if !known || !state.prepares.Equal(prepares) {
		state = drainState{prepares: prepares, since: now}
	}
	facts.Drained, facts.DrainAnswer, facts.DrainCheck = state.drained, state.answer, drainCheck
	switch {
	case state.drained:
	case now.Sub(state.since) >= facts.DrainEndpoint.Timeout:
		facts.Drained = true
		d.reportLate(pod, facts.DrainEndpoint, state)
	case state.calling:
	case now.Sub(state.ended) < drainEvery:
		facts.DrainCheck = drainEvery - now.Sub(state.ended)
	default:
		state.calling, facts.DrainCheck = true, firstDrainCheck
		d.put(pod, state)
		go d.call(pod.DeepCopy(), facts.DrainEndpoint, state)
	}
}

// call calls the endpoint of a pod once, for the state at the begin of the call.
func (d *Drains) call(pod *corev1.Pod, endpoint lifecycle.DrainEndpoint, begun drainState) {
	// No request waits for the answer, and the process ends without it.
	ctx, cancel := context.WithTimeout(context.Background(), drainPatience)
	defer cancel()
	drained, answer := false, begun.answer
	if release, err := d.slots.Acquire(ctx, pod.Namespace); err == nil {
		drained, answer = d.caller.Drain(ctx, pod.Status.PodIP, endpoint)
		release()
	}
	state, known := d.states.Get(pod.UID)
	if !known || !state.since.Equal(begun.since) {
		return // the pod has left this preparation
	}
	state.calling, state.ended, state.drained, state.answer = false, d.clock.Now(), drained, answer
	d.put(pod, state)
}

// reportLate reports once that the time-out of a pod has passed.
func (d *Drains) reportLate(pod *corev1.Pod, endpoint lifecycle.DrainEndpoint, state drainState) {
	if state.late {
		return
	}
	state.late = true
	d.put(pod, state)
	answer := cmp.Or(state.answer, "was not called in time")
	d.recorder.Eventf(pod, nil, corev1.EventTypeWarning, EventDrainTimedOut, "Drain",
		"operated on although the drain endpoint %s has not confirmed within %s that no connection is left: it %s", endpoint, endpoint.Timeout, answer)
}

func (d *Drains) put(pod *corev1.Pod, state drainState) {
	d.states.Add(pod.Namespace, pod.UID, state, drainEntryBytes)
}

// runs reports whether a container of the pod may have connections.
func runs(pod *corev1.Pod) bool {
	statuses := pod.Status.ContainerStatuses
	return pod.Status.PodIP != "" && (len(statuses) == 0 || slices.ContainsFunc(statuses, func(s corev1.ContainerStatus) bool {
		return ptr.Deref(s.Started, true)
	}))
}
