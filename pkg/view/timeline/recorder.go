package timeline

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/podops-dev/podops/pkg/view/rolloutview"
)

const (
	// MaxSpans bounds the recorded phases of a pod. The oldest phases are left out.
	MaxSpans = 256

	// maxChanges bounds the changes between two calls of Take. The oldest changes are left out.
	maxChanges = 4096

	watched = "watch"
)

// Change is a version of a pod that a watch delivered, or its deletion.
type Change struct {
	Pod     *corev1.Pod
	At      time.Time
	Deleted bool
}

// Changes collects the changes of pods between two calls of Take. The zero value is ready. It is safe for
// concurrent use.
type Changes struct {
	mu      sync.Mutex
	pending []Change
}

// Add adds a change.
func (c *Changes) Add(change Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending) == maxChanges {
		c.pending = slices.Delete(c.pending, 0, maxChanges/2)
	}
	c.pending = append(c.pending, change)
}

// Take returns the changes since the last call, in their order.
func (c *Changes) Take() []Change {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.pending
	c.pending = nil
	return taken
}

// Recorder records the phases of pods while they are watched. The zero value is ready. It is not safe for
// concurrent use.
type Recorder struct {
	pods  map[types.UID]*recorded
	order []types.UID
}

// recorded is a pod with its phases.
type recorded struct {
	Pod
	version string // the last observed resourceVersion
	begun   int    // phases, also phases that are left out
	absent  bool   // the last list of pods did not have it
}

// Follow records the pods of a list, such as the pods of a workload, at a time, and the changes to these pods
// and to those in earlier lists. The changes were taken before the list was read. A pod without a deletion counts as gone
// when two lists in sequence do not have it. Follow reports whether the versions of the list are recorded: false
// means that further changes follow.
func (r *Recorder) Follow(pods []*corev1.Pod, changes []Change, revision func(*corev1.Pod) string, now time.Time) (complete bool) {
	listed := make(map[types.UID]bool, len(pods))
	for _, pod := range pods {
		listed[pod.UID] = true
	}
	for _, change := range changes {
		if known := r.pods[change.Pod.UID]; known == nil && !listed[change.Pod.UID] {
			continue
		}
		r.Observe(change.Pod, revision(change.Pod), change.At)
		if change.Deleted {
			r.Remove(change.Pod.UID, change.At)
		}
	}
	complete = true
	for _, pod := range pods {
		known := r.pods[pod.UID]
		if known == nil {
			r.Observe(pod, revision(pod), now)
			continue
		}
		complete = complete && !newer(pod, known.version)
	}
	for uid, known := range r.pods {
		switch {
		case listed[uid] || known.Gone:
			known.absent = false
		case known.absent:
			r.Remove(uid, now)
		default:
			known.absent, complete = true, false
		}
	}
	return complete
}

// Observe records the state of a pod at a time. Where labels have the beginning of a phase that came since
// the last observation, their time counts, so that phases between two observations are recorded, too. Versions
// that are older than the last observed version are left out.
func (r *Recorder) Observe(pod *corev1.Pod, revision string, now time.Time) {
	if r.pods == nil {
		r.pods = map[types.UID]*recorded{}
	}
	known := r.pods[pod.UID]
	switch {
	case known == nil:
		known = &recorded{Pod: Pod{Name: pod.Name, UID: string(pod.UID), Revision: revision, Spans: newSpans(collectMarks(pod))}}
		known.begun = len(known.Spans)
		r.pods[pod.UID] = known
		r.order = append(r.order, pod.UID)
		r.bound()
	case known.Gone || !newer(pod, known.version):
		return
	default:
		last := known.Spans[len(known.Spans)-1]
		for _, span := range newSpans(collectMarks(pod)) {
			if span.Precision == Exact && span.From.After(last.From) && span.Phase != known.last() {
				known.begin(span)
			}
		}
	}
	known.version = pod.ResourceVersion
	if phase, _ := rolloutview.PodPhase(pod); len(known.Spans) == 0 || phase != known.last() {
		known.begin(Span{Phase: phase, From: now, Source: watched, Precision: Observed})
	}
}

// newer reports whether a pod is newer than a version. Versions that are no numbers are.
func newer(pod *corev1.Pod, version string) bool {
	order, err := resourceversion.CompareResourceVersion(pod.ResourceVersion, version)
	return err != nil || order > 0
}

// Remove records that a pod does not exist any more.
func (r *Recorder) Remove(uid types.UID, now time.Time) {
	if pod := r.pods[uid]; pod != nil && !pod.Gone {
		pod.Gone = true
		pod.Spans[len(pod.Spans)-1].To = now
	}
}

// Forget removes the pods that were gone before a time.
func (r *Recorder) Forget(before time.Time) {
	r.order = slices.DeleteFunc(r.order, func(uid types.UID) bool {
		pod := r.pods[uid]
		forgotten := pod.Gone && pod.Spans[len(pod.Spans)-1].To.Before(before)
		if forgotten {
			delete(r.pods, uid)
		}
		return forgotten
	})
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
		pod := r.pods[uid].Pod
		pod.Spans = slices.Clone(pod.Spans)
		pods = append(pods, pod)
	}
	return pods
}

// last returns the phase that a pod is in.
func (p *Pod) last() rolloutview.Phase { return p.Spans[len(p.Spans)-1].Phase }

// begin ends the last phase with the beginning of the next phase.
func (r *recorded) begin(span Span) {
	r.begun++
	if n := len(r.Spans); n > 0 {
		if span.From.Before(r.Spans[n-1].From) {
			span.From = r.Spans[n-1].From // The clocks of two machines differ.
		}
		r.Spans[n-1].To = span.From
	}
	r.Spans = append(r.Spans, span)
	r.Spans = r.Spans[max(0, len(r.Spans)-MaxSpans):]
}
