package timeline

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/podops-dev/podops/pkg/view/rolloutview"
)

// Precision is how exact a time is.
type Precision string

const (
	// Exact times have nanoseconds: labels, which the manager wrote with its decision.
	Exact Precision = "Exact"

	// Observed times are the times at which a watch delivered the change: milliseconds after it.
	Observed Precision = "Observed"

	// Second times are cut to seconds, as the API server and events write them.
	Second Precision = "Second"
)

// Span is one phase of a pod.
type Span struct {
	Phase rolloutview.Phase `json:"phase"`
	From  time.Time         `json:"from"`

	// To is the beginning of the next phase, or the time of the timeline for the last phase.
	To time.Time `json:"to"`

	// Source is where From was read, and Precision how exact it is.
	Source    string    `json:"source"`
	Precision Precision `json:"precision"`
}

// Duration returns how long a phase lasted.
func (s Span) Duration() time.Duration { return s.To.Sub(s.From) }

// Pod is a pod with its phases, in the order of their time.
type Pod struct {
	Name     string `json:"name"`
	UID      string `json:"uid"`
	Revision string `json:"revision,omitempty"`
	Spans    []Span `json:"spans"`

	// Gone is true for a pod that does not exist any more.
	Gone bool `json:"gone"`
}

// Timeline has the phases of pods.
type Timeline struct {
	// Title names the workload of the pods.
	Title string    `json:"title"`
	From  time.Time `json:"from"`
	To    time.Time `json:"to"`
	Pods  []Pod     `json:"pods"`

	// Notes are about phases that could not be read.
	Notes []string `json:"notes,omitempty"`
}

// MaxPods bounds the pods of a timeline. The pods that began first are left out.
const MaxPods = 1000

// New returns a timeline of pods until a time. Phases before from are cut; a zero from is the first phase.
// Pods are sorted by revision, the oldest first, and by the beginning of their first change.
func New(title string, pods []Pod, from, to time.Time) Timeline {
	t := Timeline{Title: title, To: to, Pods: []Pod{}}
	for _, pod := range pods {
		if pod = pod.Between(from, to); len(pod.Spans) > 0 {
			t.Pods = append(t.Pods, pod)
		}
	}
	began := map[string]time.Time{}
	for _, pod := range t.Pods {
		first := pod.Spans[0].From
		if at, ok := began[pod.Revision]; !ok || first.Before(at) {
			began[pod.Revision] = first
		}
		if t.From.IsZero() || first.Before(t.From) {
			t.From = first
		}
	}
	slices.SortFunc(t.Pods, func(a, b Pod) int {
		return cmp.Or(began[a.Revision].Compare(began[b.Revision]), cmp.Compare(a.Revision, b.Revision),
			a.changed().Compare(b.changed()), strings.Compare(a.Name, b.Name), strings.Compare(a.UID, b.UID))
	})
	if more := len(t.Pods) - MaxPods; more > 0 {
		t.Pods = t.Pods[more:]
		t.Notes = append(t.Notes, "the first pods are left out")
	}
	return t
}

// changed returns the beginning of a pod's second phase, or of the first phase if it has no other.
func (p Pod) changed() time.Time {
	return p.Spans[min(1, len(p.Spans)-1)].From
}

// Between returns a pod with the parts of its phases between two times; a zero from is the first phase.
func (p Pod) Between(from, to time.Time) Pod {
	var spans []Span
	for _, span := range p.Spans {
		if !from.IsZero() && !span.To.IsZero() && !span.To.After(from) {
			continue
		}
		if span.To.IsZero() || span.To.After(to) {
			span.To = to
		}
		if span.From.Before(from) {
			span.From = from
		}
		if span.From.After(to) {
			span.From = to // the clock of the manager is ahead, or a person wrote the label
		}
		if span.To.Before(span.From) {
			span.To = span.From
		}
		spans = append(spans, span)
	}
	p.Spans = spans
	return p
}

// Phase is the time that pods spent in a phase.
type Phase struct {
	Phase  rolloutview.Phase `json:"phase"`
	Count  int               `json:"count"`
	Median time.Duration     `json:"median"`
	Most   time.Duration     `json:"most"`
}

// Summary returns the durations of phases that are over, in the order of phases.
func (t Timeline) Summary() []Phase {
	took := map[rolloutview.Phase][]time.Duration{}
	for _, pod := range t.Pods {
		for i, span := range pod.Spans {
			if i < len(pod.Spans)-1 || pod.Gone {
				took[span.Phase] = append(took[span.Phase], span.Duration())
			}
		}
	}
	var phases []Phase
	for _, phase := range rolloutview.Phases() {
		durations := slices.Sorted(slices.Values(took[phase]))
		if len(durations) == 0 {
			continue
		}
		phases = append(phases, Phase{phase, len(durations), durations[(len(durations)-1)/2], durations[len(durations)-1]})
	}
	return phases
}
