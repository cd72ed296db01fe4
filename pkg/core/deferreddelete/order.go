package deferreddelete

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Replaces reports whether a rolling update of a StatefulSet replaces a pod of an earlier revision: its ordinal is not below the partition.
func Replaces(set *appsv1.StatefulSet, pod *corev1.Pod) bool {
	ordinal, ok := parseOrdinal(pod.Name)
	return ok && set.Spec.UpdateStrategy.Type != appsv1.OnDeleteStatefulSetStrategyType && ordinal >= rollingPartition(set)
}

// MayGoBefore returns another pod of a StatefulSet that its rolling update is to replace, while rules withhold a pod: the controller replaces
// pods in the order of their ordinals and requests the removal of no other pod, but it creates a lower pod that is deleted again with the
// new revision. It returns nil for no pod, and no pod whose deletion has begun.
func MayGoBefore(set *appsv1.StatefulSet, pod *corev1.Pod, pods []*corev1.Pod) *corev1.Pod {
	for _, other := range pods {
		outdated := other.Labels[appsv1.StatefulSetRevisionLabel] != set.Status.UpdateRevision
		isLeaving := other.DeletionTimestamp != nil || Begun(other) != ""
		if other.UID != pod.UID && metav1.IsControlledBy(other, set) && !isLeaving && outdated && Replaces(set, other) {
			return other
		}
	}
	return nil
}
