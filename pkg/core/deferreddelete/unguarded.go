package deferreddelete

import (
	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// Removed reports whether a pod is being removed: it is terminating, or a component of Kubernetes has
// ended it. The delete of pod GC follows with no grace period, so no watch shows the pod terminating.
func Removed(pod *corev1.Pod) bool {
	_, ended := endedBy(pod)
	return pod.DeletionTimestamp != nil || ended
}

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
	if !appsv1alpha1.IsControlled(pod.Labels) || mirror || namespaceTerminating || permitted(pod) || pod.Spec.NodeName == "" {
		return "", false
	}
	if reason, ended := endedBy(pod); ended {
		return reason, true
	}
	if isFinished(pod) {
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

// UpdatedUnguarded reports whether the spec of a controlled pod that runs on a node was changed in place between two versions
// of it, although no operation that leaves the pod in place was permitted. The API server counts changes of the spec in the
// generation; an ephemeral container that is added to debug the pod is no update.
func UpdatedUnguarded(before, after *corev1.Pod) bool {
	_, mirror := before.Annotations[corev1.MirrorPodAnnotationKey]
	switch {
	case !appsv1alpha1.IsControlled(before.Labels), mirror, before.UID != after.UID, before.Spec.NodeName == "":
		return false
	case after.DeletionTimestamp != nil, isFinished(before):
		return false
	case before.Generation == 0, after.Generation <= before.Generation, lastDebugger(before) != lastDebugger(after):
		return false
	}
	// Versions between the two may be missing.
	return !updatable(before.Labels) && !updatable(after.Labels)
}

// updatable reports whether an operation that leaves the pod in place may operate on it.
func updatable(labels map[string]string) bool {
	return granted(labels, func(id, operationType string) bool { return !isRemoval(id, operationType) }, appsv1alpha1.OperateLabelPrefix)
}

// lastDebugger returns the name of the ephemeral container that was added last; empty without any.
func lastDebugger(pod *corev1.Pod) string {
	if n := len(pod.Spec.EphemeralContainers); n > 0 {
		return pod.Spec.EphemeralContainers[n-1].Name
	}
	return ""
}

// endedBy returns which component of Kubernetes has ended the pod, and false for a pod that finished by
// itself. Two write the phase Failed together with the condition DisruptionTarget, and pod GC only on a pod
// that has not finished: the kubelet, for want of resources, for a critical pod or when its node shuts
// down, and pod GC, for a deleted node. All others write the condition alone, also on a pod that has finished.
func endedBy(pod *corev1.Pod) (Reason, bool) {
	if pod.Status.Phase != corev1.PodFailed {
		return "", false
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type != corev1.DisruptionTarget || condition.Status != corev1.ConditionTrue {
			continue
		}
		switch condition.Reason {
		case corev1.PodReasonTerminationByKubelet:
			return ReasonKubelet, true
		case reasonDeletionByPodGC:
			return ReasonPodGC, true
		}
	}
	return "", false
}

// permitted reports whether the PreCheck rules of an operation have passed that removes the pod. Controllers of
// custom owners and StatefulSets remove pods in operations of other types, too.
func permitted(pod *corev1.Pod) bool {
	isType := isRemoval
	if kind := OwnerKind(pod); kind == kindStatefulSet || kind != "" && controllerUser(kind) == "" {
		isType = isAny
	}
	return granted(pod.Labels, isType, appsv1alpha1.PreCheckedLabelPrefix, appsv1alpha1.OperateLabelPrefix)
}
