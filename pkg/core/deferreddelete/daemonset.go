package deferreddelete

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// ReplaceAnotherAfter is the time for which rules must have withheld a pod before another pod that its controller names goes instead.
const ReplaceAnotherAfter = 15 * time.Second

// OwnedPods are an owner's pods at a time. Begun reports whether the deletion of a pod begins or has begun, and Withheld whether rules
// withhold the pod.
type OwnedPods struct {
	Pods            []*corev1.Pod
	Begun, Withheld func(*corev1.Pod) bool
	Now             time.Time
}

// MayReplace reports whether the delete of a pod begins that the controller of a DaemonSet has requested. With each refusal the
// controller may name another pod, so no more pods begin than may be unavailable in a rolling update, besides pods that are
// unavailable anyway. instead is a waiting pod whose delete ends first, since rules withhold it; nil for none.
func MayReplace(set *appsv1.DaemonSet, pod *corev1.Pod, owned OwnedPods) (may bool, instead *corev1.Pod) {
	if !isBounded(set) || !isReady(pod) {
		return true, nil
	}
	left := maxUnavailable(set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable, int(set.Status.DesiredNumberScheduled), true)
	serves := func(other *corev1.Pod) bool {
		return other.DeletionTimestamp == nil && isReady(other) && !owned.Begun(other)
	}
	var waiting []*corev1.Pod
	for _, other := range owned.Pods {
		if other.UID == pod.UID || serves(other) {
			continue
		}
		left--
		if waitsFor(other, ActorOwner, owned.Now) >= ReplaceAnotherAfter && owned.Withheld(other) {
			waiting = append(waiting, other)
		}
	}
	if left > 0 {
		return true, nil
	}
	if len(waiting) == 0 {
		return false, nil
	}
	return left == 0, slices.MinFunc(waiting, func(a, b *corev1.Pod) int { return cmp.Compare(Begun(a), Begun(b)) })
}

// isBounded reports whether a DaemonSet bounds how many of its pods are unavailable: it has a rolling update, which does not create
// the new pod first, and no pods on nodes that are not selected.
func isBounded(set *appsv1.DaemonSet) bool {
	rolling := set.Spec.UpdateStrategy.RollingUpdate
	return rolling != nil && !isPositive(rolling.MaxSurge) && set.Status.NumberMisscheduled == 0
}

// waitsFor returns for how long a pod whose delete an actor has begun waits for its rules; 0 if it does not.
func waitsFor(pod *corev1.Pod, actor Actor, now time.Time) time.Duration {
	nanos, err := strconv.ParseInt(Begun(pod), 10, 64)
	if err != nil || !isBegunBy(pod, actor) || IsPermitted(pod) {
		return 0
	}
	return now.Sub(time.Unix(0, nanos))
}

func isPositive(value *intstr.IntOrString) bool {
	number, err := intstr.GetScaledValueFromIntOrPercent(value, 1, true)
	return value != nil && err == nil && number > 0
}
