package replicasetscale

import (
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/backoff"
)

const (
	// WakeAfter is the time for which a ReplicaSet may be lowered before the controller of
	// Deployments is woken. Pods that are granted together share that write, and the controller
	// may have been woken by the readiness of the pods.
	WakeAfter = 500 * time.Millisecond

	// LowerAfter is the time that the controller of Deployments has to lower a ReplicaSet whose
	// pods were granted operate, before PodOps lowers it.
	LowerAfter = 10 * time.Second

	// ClearAfter is the time for which a demand must have been void before its annotation is
	// removed: the cache of Deployments may be behind the controller that made the request.
	ClearAfter = time.Second

	// FirstPause is for how long no deletion begins after deletions were cancelled while their demand
	// stood. The pause doubles each time: without it each would begin again at once.
	FirstPause = 10 * time.Second

	// LongestPause bounds a pause.
	LongestPause = 10 * time.Minute

	// ForgetAfter is the time without a demand after which the next demand is a new demand,
	// whose deletions begin without a pause. Autoscalers repeat a demand every 15 seconds.
	ForgetAfter = time.Minute
)

// Snapshot is a ReplicaSet with the objects that its scale depends on.
type Snapshot struct {
	Set      *appsv1.ReplicaSet
	Workload Workload
	Pods     []*corev1.Pod
}

// HasSurplus reports whether a ReplicaSet has more pods than the desired number, all of them controlled. In a
// ReplicaSet with other pods the ReplicaSet controller chooses, and the lifecycle of a controlled pod begins
// with its delete.
func (s Snapshot) HasSurplus(desired int) bool {
	return active(s.Pods) > desired && IsUniform(s.Set, s.Pods)
}

// IsHeld reports whether a scale-down of the ReplicaSet is kept, or its pods are.
func (s Snapshot) IsHeld() bool {
	scale := ScaleOf(s.Set)
	return scale.Demand != nil || s.HasSurplus(scale.Replicas)
}

// Waits are the times that a ReplicaSet has been waiting for. The zero value waits for nothing.
type Waits struct {
	// Replicas is spec.replicas at the time of LowerableSince.
	Replicas int

	// LowerableSince is since when the ReplicaSet may be lowered; zero if it may not.
	LowerableSince time.Time

	// VoidSince is since when its annotations record no demand; zero if they do.
	VoidSince time.Time

	// Cancelled is the number of times that deletions were cancelled while their demand stood, by a
	// user or at the end of maxHold. No deletion begins before BeginAfter.
	Cancelled  int
	BeginAfter time.Time
}

// cancelled starts the next pause. Deletions that are cancelled during a pause belong to the same
// pause.
func (w Waits) cancelled(now time.Time) Waits {
	if now.Before(w.BeginAfter) {
		return w
	}
	w.BeginAfter = now.Add(backoff.Delay(FirstPause, w.Cancelled, LongestPause))
	w.Cancelled++
	return w
}

// Decision contains the next changes of a ReplicaSet and its pods.
type Decision struct {
	// Begin is the number of further pods that begin their deletion.
	Begin int

	// Annotations are changes to the annotations of the ReplicaSet; nil values remove a key.
	Annotations map[string]any

	// Lower is the new number of replicas; nil to leave it.
	Lower *int

	// Unpin are pods that have the deletion cost of a deletion that was undone.
	Unpin []*corev1.Pod

	// Wake is the delay until the next decision if nothing changes; 0 for never.
	Wake time.Duration
}

// Decide returns the next changes. Pods beyond spec.replicas leave by the ReplicaSet controller, which
// the label operate wakes. In a rollout, granted pods leave by a step of the controller of Deployments, which
// a change of the annotation lowest-replicas wakes; a ReplicaSet whose Deployment does not take that step in
// time is lowered directly.
//
// Deletions that were cancelled while the ReplicaSet has too many pods begin again after a pause: its
// controller goes on requesting them.
func Decide(s Snapshot, waits Waits, now time.Time) (Decision, Waits) {
	decision := Decision{Unpin: undone(s.Pods)}
	scale := ScaleOf(s.Set)
	desired := scale.Desired(s.Set, s.Workload)
	if desired >= scale.Replicas && !s.HasSurplus(desired) {
		return clearVoid(decision, s.Set, waits, now)
	}
	waits.VoidSince = time.Time{}
	decision.Begin = missing(s.Pods, desired)
	switch {
	case slices.ContainsFunc(s.Pods, IsGranted):
		waits.Cancelled = 0 // its pods leave: the next pause is a first pause
	case decision.Begin > 0 && len(decision.Unpin) > 0:
		waits = waits.cancelled(now)
	}
	if left := waits.BeginAfter.Sub(now); left > 0 && decision.Begin > 0 {
		decision.Begin, decision.Wake = 0, left
	}
	target := scale.Lowest(desired, s.Pods)
	if target >= scale.Replicas {
		if _, touched := s.Set.Annotations[appsv1alpha1.LowestReplicasAnnotationKey]; touched {
			decision.Annotations = map[string]any{appsv1alpha1.LowestReplicasAnnotationKey: nil}
		}
		return decision, Waits{Cancelled: waits.Cancelled, BeginAfter: waits.BeginAfter}
	}
	if waits.LowerableSince.IsZero() || waits.Replicas != scale.Replicas {
		waits.LowerableSince, waits.Replicas = now, scale.Replicas
	}
	age := now.Sub(waits.LowerableSince)
	if s.Workload.Deployment == nil || age >= LowerAfter {
		decision.Lower, decision.Annotations = &target, map[string]any{appsv1alpha1.LowestReplicasAnnotationKey: nil}
		if target == desired {
			decision.Annotations[appsv1alpha1.DesiredReplicasAnnotationKey] = nil
		}
		return decision, waits
	}
	if age < WakeAfter {
		decision.Wake = backoff.MinDelay(decision.Wake, WakeAfter-age)
		return decision, waits
	}
	if lowest := strconv.Itoa(target); s.Set.Annotations[appsv1alpha1.LowestReplicasAnnotationKey] != lowest {
		decision.Annotations = map[string]any{appsv1alpha1.LowestReplicasAnnotationKey: lowest}
	}
	decision.Wake = backoff.MinDelay(decision.Wake, LowerAfter-age)
	return decision, waits
}

// clearVoid removes annotations that record no demand, and forgets its pauses after a while.
func clearVoid(decision Decision, set *appsv1.ReplicaSet, waits Waits, now time.Time) (Decision, Waits) {
	if waits.VoidSince.IsZero() {
		waits.VoidSince = now
	}
	age := now.Sub(waits.VoidSince)
	after := Waits{VoidSince: waits.VoidSince}
	if left := ForgetAfter - age; waits.Cancelled > 0 && left > 0 {
		after.Cancelled, after.BeginAfter, decision.Wake = waits.Cancelled, waits.BeginAfter, left
	}
	switch left := ClearAfter - age; {
	case !HasAnnotations(set) && after.Cancelled == 0:
		return decision, Waits{}
	case !HasAnnotations(set):
	case left > 0:
		decision.Wake = left
	default:
		decision.Annotations = map[string]any{}
		for _, key := range []string{appsv1alpha1.DesiredReplicasAnnotationKey, appsv1alpha1.LowestReplicasAnnotationKey} {
			if _, present := set.Annotations[key]; present {
				decision.Annotations[key] = nil
			}
		}
	}
	return decision, after
}

// missing returns how many pods beyond the desired number have not begun their deletion.
func missing(pods []*corev1.Pod, desired int) int {
	deleting := 0
	for _, pod := range pods {
		if IsActive(pod) && IsDeleting(pod) {
			deleting++
		}
	}
	return max(0, active(pods)-desired-deleting)
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
