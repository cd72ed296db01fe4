package deferreddelete

import (
	"cmp"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// Rolls reports whether a rolling update of its owner replaces a pod. A pod with an ordinal that its StatefulSet does not have any
// more is not replaced.
func Rolls(owner Owner, pod *corev1.Pod) bool {
	set, ok := owner.(*appsv1.StatefulSet)
	if !ok {
		return true
	}
	ordinal, ok := parseOrdinal(pod.Name)
	start, replicas := ordinalRange(set)
	return ok && ordinal >= start && ordinal < start+replicas
}

// CompareOrdinals compares two pods of a StatefulSet by their ordinals. Its rolling update begins with the highest.
func CompareOrdinals(a, b *corev1.Pod) int {
	first, _ := parseOrdinal(a.Name)
	second, _ := parseOrdinal(b.Name)
	return cmp.Compare(first, second)
}

// MayLose reports whether a DaemonSet or StatefulSet with so many unavailable pods may lose an available one in a rolling update.
func MayLose(owner Owner, unavailable int) bool {
	switch set := owner.(type) {
	case *appsv1.DaemonSet:
		return !isBounded(set) ||
			unavailable < maxUnavailable(set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable, int(set.Status.DesiredNumberScheduled), true)
	case *appsv1.StatefulSet:
		return unavailable < mayBeUnavailable(set)
	default:
		return true
	}
}
