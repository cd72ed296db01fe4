package replicasetscale

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Victims returns the active pods of a ReplicaSet in the order in which the ReplicaSet controller
// deletes them: unassigned before assigned, pending before running, unready before ready, lower
// deletion cost first, then pods that share their node with more pods of the same workload, pods
// that became ready later, that restarted more often, and that were created later. Times are
// compared by their power of two, and pods of equal times by UID, so that a scale-in does not
// always remove the youngest. related are the pods of all the workload's ReplicaSets.
func Victims(pods, related []*corev1.Pod, now time.Time) []*corev1.Pod {
	onNode := map[string]int{}
	for _, pod := range related {
		if IsActive(pod) {
			onNode[pod.Spec.NodeName]++
		}
	}
	victims := slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool { return !IsActive(pod) })
	slices.SortStableFunc(victims, func(a, b *corev1.Pod) int {
		return cmp.Or(
			falseFirst(a.Spec.NodeName != "", b.Spec.NodeName != ""),
			cmp.Compare(phase(a), phase(b)),
			falseFirst(isReady(a), isReady(b)),
			cmp.Compare(deletionCost(a), deletionCost(b)),
			cmp.Compare(onNode[b.Spec.NodeName], onNode[a.Spec.NodeName]),
			byReadyTime(a, b, now),
			cmp.Compare(restarts(b), restarts(a)),
			byAge(a.CreationTimestamp.Time, b.CreationTimestamp.Time, now),
			strings.Compare(string(a.UID), string(b.UID)),
		)
	})
	return victims
}

func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

// phase orders the phases of active pods; any phase but these two counts as pending.
func phase(pod *corev1.Pod) int {
	switch pod.Status.Phase {
	case corev1.PodRunning:
		return 2
	case corev1.PodUnknown:
		return 1
	default:
		return 0
	}
}

func readyCondition(pod *corev1.Pod) (corev1.PodCondition, bool) {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition, condition.Status == corev1.ConditionTrue
		}
	}
	return corev1.PodCondition{}, false
}

func isReady(pod *corev1.Pod) bool {
	_, ready := readyCondition(pod)
	return ready
}

// deletionCost returns the deletion cost of a pod: 0 when the annotation is absent or invalid.
func deletionCost(pod *corev1.Pod) int64 {
	cost, _ := parseCost(pod.Annotations[corev1.PodDeletionCost])
	return cost
}

// isDeletionCost reports whether the API server accepts a text as a deletion cost.
func isDeletionCost(text string) bool {
	_, ok := parseCost(text)
	return ok
}

// parseCost reads a deletion cost as the API server does.
func parseCost(text string) (cost int64, ok bool) {
	if strings.HasPrefix(text, "+") || len(text) > 1 && strings.HasPrefix(text, "0") {
		return 0, false
	}
	cost, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0, false
	}
	return cost, true
}

// byReadyTime orders ready pods: the pod that became ready last comes first.
func byReadyTime(a, b *corev1.Pod, now time.Time) int {
	readyA, isA := readyCondition(a)
	readyB, isB := readyCondition(b)
	if !isA || !isB || readyA.LastTransitionTime.Equal(&readyB.LastTransitionTime) {
		return 0
	}
	return cmp.Or(
		byAge(readyA.LastTransitionTime.Time, readyB.LastTransitionTime.Time, now),
		strings.Compare(string(a.UID), string(b.UID)),
	)
}

// byAge orders by the age's power of two, the younger first.
func byAge(a, b, now time.Time) int {
	if a.Equal(b) {
		return 0
	}
	return cmp.Compare(power(now.Sub(a)), power(now.Sub(b)))
}

func power(age time.Duration) int {
	if age <= 0 {
		return -1
	}
	return int(math.Log2(float64(age)))
}

// restarts returns the most restarts among the pod's containers.
func restarts(pod *corev1.Pod) int32 {
	var most int32
	for _, status := range pod.Status.ContainerStatuses {
		most = max(most, status.RestartCount)
	}
	return most
}
