package permit

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
)

// renewAfter is the age of a recorded permit from which it is recorded again when its pod is
// stamped. An abandoned reservation is stamped long after it was made, and with its old time
// its permit would count for a window that has ended. A watch is usually less than this time
// behind, so that usually no further write is needed.
const renewAfter = 10 * time.Second

// take takes the slots of a request.
func (b *openBudget) take(c Candidate) {
	for rule := range b.slots {
		b.slots[rule] -= b.size(c)
	}
}

// commit reserves a pod, and the slots that its permit takes.
func (b *openBudget) commit(c Candidate, now time.Time) {
	pod := c.Request.Pod
	b.rememberOwner(pod)
	if hasUID(b.live, pod.UID) {
		b.renew(pod.Name, now)
		return
	}
	b.newlyReserved += b.size(c)
	b.take(c)
	if b.reserved == nil {
		b.reserved = map[types.UID]appsv1alpha1.ReservedPod{}
	}
	b.reserved[pod.UID] = appsv1alpha1.ReservedPod{UID: pod.UID, Name: pod.Name, ResourceVersion: pod.ResourceVersion}
	b.changed = true
	b.remember(pod.Name, now)
}

// remember appends a permit, and drops the oldest permits beyond the bound.
func (b *openBudget) remember(pod string, now time.Time) {
	if !b.keepsRecent {
		return
	}
	recent := append(slices.Clip(b.recent), rule.Permit{Pod: pod, At: now})
	b.recent = recent[max(0, len(recent)-appsv1alpha1.MaxRecentPermits):]
}

// renew sets the permit time of a live reservation to now, if it is too old or not
// recorded.
func (b *openBudget) renew(pod string, now time.Time) {
	if !b.keepsRecent {
		return
	}
	rest, last := withoutLast(b.recent, pod)
	if last != nil && now.Sub(last.At) <= renewAfter {
		return
	}
	b.recent, b.changed = rest, true
	b.remember(pod, now)
}

// withoutLast returns the permits without the last permit of a pod, and the removed permit; nil if
// the pod has no permit in the list. It does not modify the list.
func withoutLast(permits []rule.Permit, pod string) ([]rule.Permit, *rule.Permit) {
	for i, permit := range slices.Backward(permits) {
		if permit.Pod == pod {
			return slices.Concat(permits[:i], permits[i+1:]), &permit
		}
	}
	return permits, nil
}

func recentPermits(permits []rule.Permit) []appsv1alpha1.RecentPermit {
	var recent []appsv1alpha1.RecentPermit
	for _, permit := range permits {
		recent = append(recent, appsv1alpha1.RecentPermit{Pod: permit.Pod, Time: metav1.NewTime(permit.At)})
	}
	return recent
}

// ceilSecond rounds up to the resolution of the API server. Rounded down, a permit would leave
// a window too early.
func ceilSecond(t time.Time) time.Time {
	if down := t.Truncate(time.Second); down.Equal(t) {
		return down
	}
	return t.Truncate(time.Second).Add(time.Second)
}
