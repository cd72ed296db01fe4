// Package podphases measures in which phases the pods of a cluster are, for how long, and how held deletes end.
// Its numbers follow each change of a pod, so that neither a change nor a scrape costs time for the other pods.
package podphases

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/podops-dev/podops/pkg/core/podstate"
	"github.com/podops-dev/podops/pkg/runtime/earliest"
	"github.com/podops-dev/podops/pkg/runtime/metricseries"
)

// Outcomes of held deletes: the values of the label outcome. They never change.
const (
	// outcomeRemoved means that the pod is removed.
	outcomeRemoved = "Removed"

	// outcomeUndone means that the pod stays.
	outcomeUndone = "Undone"
)

// Tracker is the podindex.Observer that measures. Every replica keeps its numbers, so that a new leader has them
// at once; only the leader has the series of pods, and counts the phases that end. It is safe for concurrent
// use.
type Tracker struct {
	clock clock.PassiveClock

	durations map[podstate.Phase]prometheus.Observer
	held      prometheus.Counter
	removed   prometheus.Counter
	undone    prometheus.Counter
	gauges    gauges

	mu sync.Mutex
	// leads is closed once this replica leads; nil before Lead.
	leads      <-chan struct{}
	names      *metricseries.Names
	namespaces map[string]*namespace
}

// namespace has the numbers of a namespace's pods.
type namespace struct {
	pods    map[podstate.Phase]int
	deletes int

	// since is when the pods of a phase began it, for the phases of Bounded.
	since map[podstate.Phase]*earliest.Times[types.UID]
}

// Bounded returns the phases that end by themselves: a pod that stays in one of them waits for something.
func Bounded() []podstate.Phase {
	return append(timed(), podstate.PhaseUnavailable)
}

// timed returns the phases whose begin each pod shows, so that their duration can be measured.
func timed() []podstate.Phase {
	return []podstate.Phase{
		podstate.PhaseTerminating, podstate.PhaseOperating, podstate.PhasePreparing, podstate.PhasePostCheck, podstate.PhasePreCheck,
		podstate.PhaseCompleting,
	}
}

// NewTracker registers the metrics. It fails when they are registered already.
func NewTracker(registry prometheus.Registerer, clk clock.PassiveClock) (*Tracker, error) {
	durations := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "podops_pod_phase_duration_seconds",
		Help: "For how long pods were in a phase, when it ends: Terminating, Operating, Preparing, PostCheck, PreCheck or Completing. " +
			"The begin is that on the pod, so that a phase which outlasts a manager is measured whole.",
		Buckets: []float64{0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 4 * 3600, 24 * 3600},
	}, []string{"phase"})
	held := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "podops_deletes_held_total",
		Help: "Deletes and evictions of pods that PodOps has begun to hold. A pod counts once, however often its client repeats the request.",
	})
	ended := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "podops_deletes_ended_total",
		Help: "Held deletes and evictions that have ended: the pod is removed, or was released from PodOps (Removed), or it stays (Undone).",
	}, []string{"outcome"})
	t := &Tracker{
		clock: clk, durations: map[podstate.Phase]prometheus.Observer{}, held: held,
		removed: ended.WithLabelValues(outcomeRemoved), undone: ended.WithLabelValues(outcomeUndone), gauges: newGauges(),
		names:      metricseries.NewNames(metricseries.Limits{PerNamespace: 1, InAll: metricseries.MaxNamespaces}),
		namespaces: map[string]*namespace{},
	}
	for _, phase := range timed() {
		t.durations[phase] = durations.WithLabelValues(string(phase))
	}
	for _, collector := range []prometheus.Collector{durations, held, ended, t} {
		if err := registry.Register(collector); err != nil {
			return nil, fmt.Errorf("registering the metrics of phases: %w", err)
		}
	}
	return t, nil
}

// Lead has the Tracker show and count pods from the moment on that elected is closed.
func (t *Tracker) Lead(elected <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leads = elected
}

// isLeading reports whether this replica leads. The caller holds the lock.
func (t *Tracker) isLeading() bool {
	select {
	case <-t.leads:
		return true
	default:
		return false
	}
}

// Changed implements podindex.Observer.
func (t *Tracker) Changed(in string, pod types.UID, before, after podstate.Standing) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.namespaces[in]
	if n == nil {
		n = &namespace{pods: map[podstate.Phase]int{}, since: map[podstate.Phase]*earliest.Times[types.UID]{}}
		for _, phase := range Bounded() {
			n.since[phase] = &earliest.Times[types.UID]{}
		}
		t.namespaces[in] = n
	}
	n.subtract(pod, before)
	n.add(pod, after)
	if len(n.pods) == 0 {
		delete(t.namespaces, in)
		t.names.Release(in, in)
	}
	if t.isLeading() {
		t.count(before, after)
	}
}

// add counts a pod where it stands.
func (n *namespace) add(pod types.UID, at podstate.Standing) {
	if at.Phase == "" {
		return
	}
	n.pods[at.Phase]++
	if at.DeleteHeld {
		n.deletes++
	}
	if since := n.since[at.Phase]; since != nil && !at.Since.IsZero() {
		since.Set(pod, at.Since)
	}
}

// subtract ends the count of a pod where it stood.
func (n *namespace) subtract(pod types.UID, at podstate.Standing) {
	if at.Phase == "" {
		return
	}
	if n.pods[at.Phase]--; n.pods[at.Phase] == 0 {
		delete(n.pods, at.Phase)
	}
	if at.DeleteHeld {
		n.deletes--
	}
	if since := n.since[at.Phase]; since != nil {
		since.Remove(pod)
	}
}

// count counts the end of a phase, and the begin and the end of a held delete. The first sight of a pod is
// neither: it may have been there before this process.
func (t *Tracker) count(before, after podstate.Standing) {
	if before.Phase == "" {
		return
	}
	if duration := t.durations[before.Phase]; duration != nil && before.Phase != after.Phase && !before.Since.IsZero() {
		duration.Observe(t.ended(before, after).Sub(before.Since).Seconds())
	}
	switch {
	case before.DeleteHeld == after.DeleteHeld:
	case after.DeleteHeld:
		t.held.Inc()
	case after.Phase == "" || after.Phase == podstate.PhaseTerminating:
		t.removed.Inc()
	default:
		t.undone.Inc()
	}
}

// ended returns when a phase ended: when the next began, if the pod shows it, or else now.
func (t *Tracker) ended(before, after podstate.Standing) time.Time {
	end := after.Since
	if end.IsZero() || end.Before(before.Since) {
		end = t.clock.Now()
	}
	if end.Before(before.Since) {
		return before.Since // clocks differ
	}
	return end
}

// sums are the numbers behind one value of the label namespace.
type sums struct {
	pods    map[podstate.Phase]int
	deletes int
	first   map[podstate.Phase]time.Time
}

// summed returns the numbers by the value of the label namespace; empty on a replica that does not
// lead.
func (t *Tracker) summed() map[string]*sums {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.isLeading() {
		return nil
	}
	all := map[string]*sums{}
	for _, name := range slices.Sorted(maps.Keys(t.namespaces)) {
		label := t.names.Value(name, name)
		if all[label] == nil {
			all[label] = &sums{pods: map[podstate.Phase]int{}, first: map[podstate.Phase]time.Time{}}
		}
		all[label].add(t.namespaces[name])
	}
	return all
}

func (s *sums) add(n *namespace) {
	s.deletes += n.deletes
	for phase, count := range n.pods {
		s.pods[phase] += count
	}
	for phase, times := range n.since {
		if first, ok := times.First(); ok && (s.first[phase].IsZero() || first.Before(s.first[phase])) {
			s.first[phase] = first
		}
	}
}
