package timeline

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podops-dev/podops/pkg/view/rolloutview"
)

// streamedFor is the time for which a Stream keeps a pod that is gone.
const streamedFor = time.Minute

// Stream returns the changes of pods: each phase that a Recorder records, and each other reason for which a pod
// waits. The zero value is ready. It is not safe for concurrent use.
type Stream struct {
	recorder Recorder
	returned map[string]returned // by the UIDs of pods
}

// returned has the changes of a pod that a Stream has returned.
type returned struct {
	begun int // phases
	last  rolloutview.Change
}

// Next returns the changes until a view, in the order of their times, and reports whether they have the last versions
// of its pods. The pods are the pods of the view; the changes were taken before they were read. The first call
// returns the present phase of each pod, at the time of the view.
func (s *Stream) Next(view rolloutview.View, pods []*corev1.Pod, changes []Change) (out []rolloutview.Change, complete bool) {
	complete = s.recorder.Follow(pods, changes, func(*corev1.Pod) string { return "" }, view.Time.Time)
	described := map[string]rolloutview.Pod{}
	for _, pod := range view.AllPods() {
		described[pod.UID] = pod
	}
	before := s.returned
	s.returned = make(map[string]returned, len(s.recorder.order))
	for _, uid := range s.recorder.order {
		pod := s.recorder.pods[uid]
		was := before[pod.UID]
		next := pod.since(was.begun)
		if before == nil {
			next = []rolloutview.Change{{Time: metav1.NewMicroTime(view.Time.Time), Pod: pod.Name, UID: pod.UID, To: pod.last()}}
		}
		next = continued(was.last, next, described[pod.UID], view.Time.Time)
		if len(next) > 0 {
			was.last = next[len(next)-1]
		}
		was.begun = pod.begun
		s.returned[pod.UID] = was
		out = append(out, next...)
	}
	s.recorder.Forget(view.Time.Add(-streamedFor))
	slices.SortStableFunc(out, func(a, b rolloutview.Change) int {
		return cmp.Or(a.Time.Compare(b.Time.Time), cmp.Compare(a.Pod+a.UID, b.Pod+b.UID))
	})
	return out, complete
}

// since returns the phases of a pod that have begun after others; the end of the pod is a phase, too.
func (r *recorded) since(begun int) []rolloutview.Change {
	var out []rolloutview.Change
	for _, span := range r.Spans[max(0, len(r.Spans)-max(0, r.begun-begun)):] {
		out = append(out, rolloutview.Change{Time: metav1.NewMicroTime(span.From), Pod: r.Name, UID: r.UID, To: span.Phase})
	}
	if r.Gone {
		end := metav1.NewMicroTime(r.Spans[len(r.Spans)-1].To)
		out = append(out, rolloutview.Change{Time: end, Pod: r.Name, UID: r.UID, To: rolloutview.PhaseGone})
	}
	return out
}

// continued returns the changes of a pod that follow a last change, with the phase before each and, at the end, the
// reason for which the view has the pod wait. Another reason alone is a change at the time of the view.
func continued(last rolloutview.Change, next []rolloutview.Change, described rolloutview.Pod, now time.Time) []rolloutview.Change {
	if last.To == rolloutview.PhaseGone {
		return nil
	}
	if len(next) == 0 && described.Phase == last.To && !rolloutview.SameWait(last, described) {
		next = []rolloutview.Change{{Time: metav1.NewMicroTime(now), Pod: last.Pod, UID: last.UID, To: last.To}}
	}
	for i := range next {
		next[i].From = last.To
		if i == len(next)-1 && described.Phase == next[i].To {
			next[i].Withheld, next[i].WaitsFor = described.Withheld, described.WaitsFor
		}
		last = next[i]
	}
	return next
}
