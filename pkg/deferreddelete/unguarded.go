package deferreddelete

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// Removed reports whether a pod is being removed: it is terminating, or its kubelet has ended it
// because its node has no resources left.
func Removed(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil || endedByKubelet(pod) }

// UnguardedReasons returns the reasons that Unguarded returns.
func UnguardedReasons() []Reason {
	return []Reason{
		ReasonTaintManager, ReasonPodGC, ReasonPreemption, ReasonKubelet, ReasonOwnerDeleted, ReasonForced, ReasonUnanswered,
	}
}

// Unguarded returns why a pod that is being removed has not passed its rules first, in the state in
// which it is seen so for the first time. It returns false for a removal that needs no rules: the
// rules had permitted it, the pod had finished or never started, it is a mirror pod, or its namespace is
// terminating.
func Unguarded(pod *corev1.Pod, owner OwnerState, namespaceTerminating bool) (Reason, bool) {
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	if !appsv1alpha1.IsControlled(pod.Labels) || mirror || namespaceTerminating || permitted(pod.Labels) || pod.Spec.NodeName == "" {
		return "", false
	}
	if endedByKubelet(pod) {
		return ReasonKubelet, true
	}
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return "", false
	}
	if reason, ok := Disruption(pod); ok {
		return reason, true
	}
	switch {
	case owner != OwnerPresent:
		return ReasonOwnerDeleted, true
	case pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0:
		return ReasonForced, true
	default:
		return ReasonUnanswered, true
	}
}

// endedByKubelet reports whether the kubelet has evicted the pod because of node pressure, or
// for a pod of higher priority.
func endedByKubelet(pod *corev1.Pod) bool {
	if pod.Status.Phase != corev1.PodFailed {
		return false
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.DisruptionTarget && condition.Status == corev1.ConditionTrue && condition.Reason == corev1.PodReasonTerminationByKubelet {
			return true
		}
	}
	return false
}

// permitted reports whether the PreCheck rules of some id on the pod have passed.
func permitted(labels map[string]string) bool {
	for key := range labels {
		if strings.HasPrefix(key, appsv1alpha1.PreCheckedLabelPrefix+"/") || strings.HasPrefix(key, appsv1alpha1.OperateLabelPrefix+"/") {
			return true
		}
	}
	return false
}
