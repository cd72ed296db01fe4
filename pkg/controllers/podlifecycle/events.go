package podlifecycle

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/runtime/fairshare"
)

// problemBytes bounds the memory of problems, about 10,000. Beyond it the namespace with the most of
// them loses its oldest, which are recorded again.
const problemBytes = 6 << 20

// lastProblems contains the last problem that was recorded for each pod: an unchanged pod
// gets one event, however often it is reconciled. One pod is reconciled by one worker at a time.
type lastProblems struct {
	last *fairshare.Cache[types.UID, lifecycle.Problem]
}

func newLastProblems() lastProblems {
	return lastProblems{last: fairshare.NewCache[types.UID, lifecycle.Problem](problemBytes)}
}

// changed reports whether the pod has a problem that differs from its last problem.
func (l lastProblems) changed(pod *corev1.Pod, p lifecycle.Problem) bool {
	if last, _ := l.last.Get(pod.UID); last == p {
		return false
	}
	if p == (lifecycle.Problem{}) {
		l.last.Remove(pod.UID)
		return false
	}
	l.last.Add(pod.Namespace, pod.UID, p, int64(len(pod.UID)+len(p.Reason)+len(p.Text)))
	return true
}

func (r *Reconciler) recordProblem(pod *corev1.Pod, p lifecycle.Problem) {
	if pod.DeletionTimestamp != nil {
		r.lastProblems.last.Remove(pod.UID)
		return
	}
	if r.lastProblems.changed(pod, p) {
		r.Problems.WithLabelValues(p.Reason).Inc()
		r.Recorder.Eventf(pod, nil, corev1.EventTypeWarning, p.Reason, "Advance", "%s", p.Text)
	}
}
