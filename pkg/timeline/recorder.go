package timeline

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/pkg/rolloutview"
)

const watched = "watch"

// Recorder records the phases of pods while they are watched. The zero value is ready. It is not safe for
// concurrent use.
type Recorder struct {
	pods  map[types.UID]*Pod
	order []types.UID
}

// Observe records the state of a pod at a time. Where labels have the beginning of a phase that came since
// the last observation, their time counts, so that phases between two observations are recorded, too.
func (r *Recorder) Observe(pod *corev1.Pod, revision string, now time.Time) {
	if r.pods == nil {
		r.pods = map[types.UID]*Pod{}
	}
	known := r.pods[pod.UID]
	if known == nil {
		known = &Pod{Name: pod.Name, UID: string(pod.UID), Revision: revision, Spans: spansOf(marksOf(pod))}
		r.pods[pod.UID] = known
		r.order = append(r.order, pod.UID)
		r.bound()
	} else {
		last := known.Spans[len(known.Spans)-1]
		for _, span := range spansOf(marksOf(pod)) {
			if span.Precision == Exact && span.From.After(last.From) && span.Phase != known.last() {
				known.begin(span)
			}
		}
	}
	if phase, _ := rolloutview.PhaseOf(pod); len(known.Spans) == 0 || phase != known.last() {
		known.begin(Span{Phase: phase, From: now, Source: watched, Precision: Observed})
	}
}

// Remove records that a pod is gone.
func (r *Recorder) Remove(uid types.UID, now time.Time) {
	if pod := r.pods[uid]; pod != nil && !pod.Gone {
		pod.Gone = true
		pod.Spans[len(pod.Spans)-1].To = now
	}
}

// bound forgets the pods that were seen first beyond MaxPods.
func (r *Recorder) bound() {
	if len(r.order) > MaxPods {
		delete(r.pods, r.order[0])
		r.order = r.order[1:]
	}
}

// Pods returns copies of the recorded pods, in the order in which they were first observed.
func (r *Recorder) Pods() []Pod {
	pods := make([]Pod, 0, len(r.order))
	for _, uid := range r.order {
		pod := *r.pods[uid]
		pod.Spans = append([]Span(nil), pod.Spans...)
		pods = append(pods, pod)
	}
	return pods
}

// last returns the phase that a pod is in.
func (p *Pod) last() rolloutview.Phase { return p.Spans[len(p.Spans)-1].Phase }

// begin ends the last phase with the beginning of another one.
func (p *Pod) begin(span Span) {
	if n := len(p.Spans); n > 0 {
		if span.From.Before(p.Spans[n-1].From) {
			span.From = p.Spans[n-1].From // The clocks of two machines differ.
		}
		p.Spans[n-1].To = span.From
	}
	p.Spans = append(p.Spans, span)
}
