package promise

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// mirrorAnnotation marks the shadow of a pod that only its kubelet can stop.
const mirrorAnnotation = corev1.MirrorPodAnnotationKey

// MayDelete reports whether a DELETE of the pod passes. It is held unless one of these
// holds:
//   - the pod is not under PodOps,
//   - it is terminating already: what follows is the kubelet's final delete,
//   - it has finished: there is nothing left to serve,
//   - it is a mirror pod,
//   - its namespace is terminating,
//   - some id on it was granted operate: its traffic is off and its rules agreed.
func MayDelete(pod *corev1.Pod, namespaceTerminating bool) bool {
	if pod.Labels[appsv1alpha1.ControlLabelKey] != appsv1alpha1.ControlLabelValue || namespaceTerminating {
		return true
	}
	if pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return true
	}
	if _, mirror := pod.Annotations[mirrorAnnotation]; mirror {
		return true
	}
	return Operable(pod.Labels)
}

// HeldFor reports whether deletes of the pod are held at all: so far only those of pods
// that a ReplicaSet controls.
func HeldFor(pod *corev1.Pod) bool {
	controller := metav1.GetControllerOf(pod)
	return controller != nil && controller.Kind == "ReplicaSet"
}

// Operable reports whether some id on the pod was granted operate: the pod may be
// operated on in any way now, removal included.
func Operable(labels map[string]string) bool {
	for key := range labels {
		if strings.HasPrefix(key, appsv1alpha1.OperateLabelPrefix+"/") {
			return true
		}
	}
	return false
}

// IsPromised reports whether a held delete of the pod is under way.
func IsPromised(labels map[string]string) bool {
	_, ok := labels[appsv1alpha1.OperatingLabelPrefix+"/"+appsv1alpha1.PodDeleteID]
	return ok
}
