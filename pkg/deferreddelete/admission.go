package deferreddelete

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// mirrorAnnotation marks the mirror pod of a static pod, which only its kubelet can stop.
const mirrorAnnotation = corev1.MirrorPodAnnotationKey

// OwnerState is the state of the ReplicaSet that controls a pod.
type OwnerState int

// The states of an owner. The zero value defers deletes: an owner of unknown state counts as
// present.
const (
	// OwnerPresent means that the ReplicaSet exists, and may have a surplus of pods.
	OwnerPresent OwnerState = iota

	// OwnerTerminating means that the ReplicaSet is being deleted. Its controller deletes no
	// more pods; the garbage collector does.
	OwnerTerminating

	// OwnerGone means that no ReplicaSet with the UID that the pod refers to exists.
	OwnerGone
)

// MayDelete reports whether a DELETE of the pod passes. All controllers of a cluster may
// share one user, so the decision depends on the pod and its owner, not on the user. The
// delete is deferred unless one of these holds:
//   - the pod is not under PodOps,
//   - it is terminating already: what follows is the kubelet's final delete,
//   - it has finished: it serves no requests,
//   - it is a mirror pod,
//   - its namespace is terminating,
//   - its ReplicaSet is deleted or terminating: the garbage collector deletes the pod,
//   - a controller that deletes pods of failed or tainted nodes has marked it (Disrupted),
//   - some id on it was granted operate: its traffic is off and its rules have passed.
//
// All other deletes are deferred, even if PodOps sees no surplus of the ReplicaSet: its
// controller may have seen a change of replicas that PodOps has not.
func MayDelete(pod *corev1.Pod, owner OwnerState, namespaceTerminating bool) bool {
	if !appsv1alpha1.IsControlled(pod.Labels) || namespaceTerminating {
		return true
	}
	if pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return true
	}
	if _, mirror := pod.Annotations[mirrorAnnotation]; mirror {
		return true
	}
	return owner != OwnerPresent || Disrupted(pod) || Operable(pod.Labels)
}

// Reasons of the condition DisruptionTarget that controllers set right before they delete
// a pod. The taint manager gives up after five attempts within 50 ms, so its delete must
// pass at once. The disruption controller resets the condition after two minutes when no
// delete follows.
const (
	reasonTaintManager       = "DeletionByTaintManager"
	reasonDeviceTaintManager = "DeletionByDeviceTaintManager"
	reasonPodGC              = "DeletionByPodGC"
)

// Disrupted reports whether a controller is about to delete the pod because of its node
// or device: a NoExecute taint that the pod does not tolerate, or a deleted node.
func Disrupted(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type != corev1.DisruptionTarget || condition.Status != corev1.ConditionTrue {
			continue
		}
		switch condition.Reason {
		case reasonTaintManager, reasonDeviceTaintManager, reasonPodGC:
			return true
		}
	}
	return false
}

// AppliesTo reports whether deletes of the pod may be deferred: a ReplicaSet must control the pod.
func AppliesTo(pod *corev1.Pod) bool {
	controller := metav1.GetControllerOf(pod)
	return controller != nil && controller.Kind == "ReplicaSet"
}

// Operable reports whether some id on the pod was granted operate: every operation on the pod
// is allowed now, including its removal.
func Operable(labels map[string]string) bool {
	for key := range labels {
		if strings.HasPrefix(key, appsv1alpha1.OperateLabelPrefix+"/") {
			return true
		}
	}
	return false
}

// IsDeferred reports whether a deferred delete of the pod is in progress.
func IsDeferred(labels map[string]string) bool {
	_, ok := labels[appsv1alpha1.OperatingLabelPrefix+"/"+appsv1alpha1.PodDeleteID]
	return ok
}
