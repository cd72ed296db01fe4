package replicasetscale

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/runtime/backoff"
)

const (
	// WakeAfter is the time for which a ReplicaSet may be lowered before the controller of
	// Deployments is woken. Pods that are granted together share that write, and the controller
	// may have been woken by the readiness of the pods.
	WakeAfter = 500 * time.Millisecond

	// WakeAgainAfter is the time after which it is woken again. It doubles each time, to LongestPause.
	WakeAgainAfter = 10 * time.Second

	// FirstPause is for how long no deletion begins after deletions were cancelled while the ReplicaSet
	// had too many pods. The pause doubles each time: without it each would begin again at once.
	FirstPause = 10 * time.Second

	// LongestPause bounds a pause.
	LongestPause = 10 * time.Minute

	// TransferAfter is how soon a ReplicaSet looks again whether deletions that it is to begin have ended in another
	// ReplicaSet of its workload.
	TransferAfter = time.Second

	// ForgetAfter is the time without a surplus after which a surplus has nothing to do with an earlier one,
	// whose deletions begin without a pause. Autoscalers repeat their requests every 15 seconds.
	ForgetAfter = time.Minute
)

// Snapshot is a ReplicaSet with the objects that its scale depends on.
type Snapshot struct {
	Set      *appsv1.ReplicaSet
	Workload Workload
	Pods     []*corev1.Pod

	// Attempts are the deletions that were cancelled so that other pods may go, by UID.
	Attempts map[types.UID]Attempt
}

// HasSurplus reports whether a ReplicaSet has more pods than its target, all of them controlled. In a
// ReplicaSet with other pods the ReplicaSet controller chooses, and the lifecycle of a controlled pod begins
// with its delete.
func (s Snapshot) HasSurplus() bool {
	return s.counted() > s.Workload.Target(s.Set) && Others(s.Set, s.Pods) == 0
}

// catchUp returns when to look again for pods beyond the target that the ReplicaSet counts and the cache does not have: no event of a pod
// at rest wakes the ReplicaSet. They may be pods without the control label; 0 if it has all.
func (s Snapshot) catchUp() time.Duration {
	switch counted := int(s.Set.Status.Replicas); {
	case counted <= s.Workload.Target(s.Set) || active(s.Pods) >= counted:
		return 0
	case Others(s.Set, s.Pods) > 0:
		return WakeAgainAfter
	default:
		return TransferAfter
	}
}

// counted returns the number of active pods, at most as many as the ReplicaSet counts: with more, this version of it is
// older than its pods, and so may be its number of replicas, for which the others were created.
func (s Snapshot) counted() int { return min(active(s.Pods), int(s.Set.Status.Replicas)) }

// Waits are the times that a ReplicaSet has been waiting for. The zero value waits for nothing.
type Waits struct {
	// Replicas is spec.replicas at the time of LowerableSince.
	Replicas int

	// LowerableSince is since when the ReplicaSet may be lowered, or its Deployment was woken last; zero if
	// it may not.
	LowerableSince time.Time

	// Woken is how often its Deployment was woken since it may be lowered.
	Woken int

	// SufficesSince is since when the ReplicaSet has no surplus; zero if it has.
	SufficesSince time.Time

	// Cancelled is the number of times that deletions were cancelled while there was a surplus, by a
	// user, at the end of maxHold, or since the pods were not removed, and none has left since. No deletion
	// begins before BeginAfter.
	Cancelled  int
	BeginAfter time.Time

	// Pods is the number of pods.
	Pods int

	// Cleared is how often the annotations of PodOps were removed from the ReplicaSet without a surplus. They are removed
	// again at ClearAfter: a controller may go on making the request that adds them.
	Cleared    int
	ClearAfter time.Time

	// Exchanged is when waiting deletions were cancelled last so that others begin, and Passes how often that was for
	// pods that had been withheld before.
	Exchanged time.Time
	Passes    int
}

// Paused starts the next pause, since deletions were cancelled while there was a surplus. Deletions that are cancelled during a pause
// belong to the same pause.
func (w Waits) Paused(now time.Time) Waits {
	if now.Before(w.BeginAfter) {
		return w
	}
	w.BeginAfter = now.Add(backoff.Delay(FirstPause, w.Cancelled, LongestPause))
	w.Cancelled++
	return w
}

// counted notes the number of pods. Where pods leave, the next pause is a first pause.
func (w Waits) counted(pods int) Waits {
	if pods < w.Pods {
		w.Cancelled = 0
	}
	w.Pods = pods
	return w
}

// Decision contains the next changes of a ReplicaSet and its pods.
type Decision struct {
	// Begin is the number of further pods that begin their deletion.
	Begin int

	// Exchange are waiting pods whose deletion is to be cancelled, so that another pod begins: see Attempt.
	Exchange []*corev1.Pod

	// Annotations are changes to the annotations of the ReplicaSet; nil values remove a key.
	Annotations map[string]any

	// Unpin are pods that have the deletion cost of a deletion that was undone.
	Unpin []*corev1.Pod

	// Wake is the delay until the next decision if nothing changes; 0 for never.
	Wake time.Duration
}

// Decide returns the next changes. Pods beyond spec.replicas leave by the ReplicaSet controller, which
// the label operate wakes. In a rolling update, granted pods leave by a step of the Deployment controller,
// which a change of the annotation woken wakes.
//
// Deletions that were cancelled while the ReplicaSet has too many pods begin again after a pause: its
// controller goes on requesting them.
func Decide(s Snapshot, waits Waits, now time.Time) (Decision, Waits) {
	decision := Decision{Unpin: undone(s.Pods)}
	waits = waits.counted(s.counted())
	if !s.HasSurplus() {
		if HasAnnotations(s.Set) && !now.Before(waits.ClearAfter) {
			decision.Annotations = withoutAnnotations(s.Set)
			waits.ClearAfter = now.Add(backoff.Delay(WakeAgainAfter, waits.Cleared, LongestPause))
			waits.Cleared++
		}
		decision, waits = rest(decision, waits, now)
		decision.Wake = backoff.MinDelay(decision.Wake, s.catchUp())
		return decision, waits
	}
	waits.SufficesSince = time.Time{}
	target, replicas := s.Workload.Target(s.Set), Replicas(s.Set.Spec.Replicas)
	decision.Begin = s.missing(target)
	if decision.Begin > 0 && len(decision.Unpin) > 0 && !slices.ContainsFunc(s.Pods, IsGranted) {
		waits = waits.Paused(now)
	}
	if elsewhere := min(decision.Begin, s.Workload.excess(s.Set)); elsewhere > 0 {
		decision.Begin, decision.Wake = decision.Begin-elsewhere, TransferAfter
	}
	if left := waits.BeginAfter.Sub(now); left > 0 && decision.Begin > 0 {
		decision.Begin, decision.Wake = 0, left
	}
	if decision.Begin == 0 {
		var wait time.Duration
		decision.Exchange, waits, wait = s.exchange(waits, now)
		decision.Wake = backoff.MinDelay(decision.Wake, wait)
	}
	if Kept(replicas, target, Ungranted(s.Pods)) == replicas {
		waits.Replicas, waits.LowerableSince, waits.Woken = 0, time.Time{}, 0
		return decision, waits
	}
	return wake(decision, replicas, waits, now)
}

// wake wakes the controller of Deployments if it does not lower the ReplicaSet by itself.
func wake(decision Decision, replicas int, waits Waits, now time.Time) (Decision, Waits) {
	if waits.LowerableSince.IsZero() || waits.Replicas != replicas {
		waits.LowerableSince, waits.Replicas, waits.Woken = now, replicas, 0
	}
	delay := WakeAfter
	if waits.Woken > 0 {
		delay = backoff.Delay(WakeAgainAfter, waits.Woken-1, LongestPause)
	}
	if left := delay - now.Sub(waits.LowerableSince); left > 0 {
		decision.Wake = backoff.MinDelay(decision.Wake, left)
		return decision, waits
	}
	decision.Annotations = map[string]any{appsv1alpha1.WokenAnnotationKey: now.UTC().Format(time.RFC3339Nano)}
	decision.Wake = backoff.MinDelay(decision.Wake, backoff.Delay(WakeAgainAfter, waits.Woken, LongestPause))
	waits.LowerableSince, waits.Woken = now, waits.Woken+1
	return decision, waits
}

// withoutAnnotations removes the annotations of PodOps from a ReplicaSet.
func withoutAnnotations(set *appsv1.ReplicaSet) map[string]any {
	removed := map[string]any{}
	for _, key := range Annotations() {
		if _, present := set.Annotations[key]; present {
			removed[key] = nil
		}
	}
	return removed
}

// rest forgets the pauses of a ReplicaSet that has no surplus after a while, and how often it was cleared.
func rest(decision Decision, waits Waits, now time.Time) (Decision, Waits) {
	if waits.SufficesSince.IsZero() {
		waits.SufficesSince = now
	}
	rested, kept := Waits{SufficesSince: waits.SufficesSince}, false
	if left := ForgetAfter - now.Sub(waits.SufficesSince); waits.Cancelled > 0 && left > 0 {
		rested.Cancelled, rested.BeginAfter, rested.Pods, kept = waits.Cancelled, waits.BeginAfter, waits.Pods, true
		decision.Wake = left
	}
	if left := waits.ClearAfter.Sub(now); left > 0 {
		rested.Cleared, rested.ClearAfter, kept = waits.Cleared, waits.ClearAfter, true
		decision.Wake = backoff.MinDelay(decision.Wake, left)
	}
	if !kept {
		return decision, Waits{}
	}
	return decision, rested
}

// missing returns how many pods beyond the desired number have not begun their deletion.
func (s Snapshot) missing(desired int) int {
	deleting := 0
	for _, pod := range s.Pods {
		if IsActive(pod) && IsDeleting(pod) {
			deleting++
		}
	}
	return max(0, s.counted()-desired-deleting)
}

// excess returns how many deletions have begun in other ReplicaSets of the workload beyond their surplus: a pod that was
// unavailable, and hence to go first, became available while it waited. Such a pod goes if it is permitted before its
// deletion is cancelled, so none begins in its place meanwhile.
func (w Workload) excess(set *appsv1.ReplicaSet) int {
	excess := 0
	for _, sibling := range w.Sets {
		if sibling.UID == set.UID {
			continue
		}
		pods, deleting := 0, 0
		for _, pod := range w.Pods {
			if !metav1.IsControlledBy(pod, sibling) || !IsActive(pod) {
				continue
			}
			pods++
			if IsDeleting(pod) {
				deleting++
			}
		}
		excess += max(0, deleting-max(0, pods-w.Target(sibling)))
	}
	return excess
}

// active returns the number of active pods.
func active(pods []*corev1.Pod) int {
	count := 0
	for _, pod := range pods {
		if IsActive(pod) {
			count++
		}
	}
	return count
}

// IsDeleting reports whether the lifecycle pod-delete of a pod has begun and not ended.
func IsDeleting(pod *corev1.Pod) bool {
	_, operating := pod.Labels[appsv1alpha1.OperatingLabelPrefix+"/"+appsv1alpha1.PodDeleteID]
	return operating
}

// undone returns the active pods whose deletion was begun and has ended without it.
func undone(pods []*corev1.Pod) []*corev1.Pod {
	var found []*corev1.Pod
	for _, pod := range pods {
		if IsActive(pod) && IsBegun(pod) && !IsDeleting(pod) {
			found = append(found, pod)
		}
	}
	return found
}
