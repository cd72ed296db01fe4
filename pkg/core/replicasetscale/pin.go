package replicasetscale

import (
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// The deletion costs of pods that leave. Among pods of one phase and readiness the ReplicaSet
// controller deletes the pods with the lowest cost first. A pod that may be deleted has the
// least int32, so that it precedes a pod that is unready as well, and must still wait.
const (
	begunCost   = "-2147483647"
	grantedCost = "-2147483648"
)

// IsBegun reports whether PodOps began the deletion of the pod for its ReplicaSet. The lifecycle
// pod-delete of another controller is left to that controller.
func IsBegun(pod *corev1.Pod) bool {
	_, begun := pod.Annotations[appsv1alpha1.PreviousDeletionCostAnnotationKey]
	return begun
}

// Begin returns the labels and annotations with which a pod begins its deletion.
func Begin(pod *corev1.Pod, now time.Time) (labels map[string]any, annotations map[string]any) {
	labels = map[string]any{
		appsv1alpha1.OperatingLabelPrefix + "/" + appsv1alpha1.PodDeleteID:     strconv.FormatInt(now.UnixNano(), 10),
		appsv1alpha1.OperationTypeLabelPrefix + "/" + appsv1alpha1.PodDeleteID: appsv1alpha1.DeleteOperationType,
	}
	annotations = map[string]any{corev1.PodDeletionCost: begunCost}
	if !IsBegun(pod) {
		annotations[appsv1alpha1.PreviousDeletionCostAnnotationKey] = pod.Annotations[corev1.PodDeletionCost]
	}
	return labels, annotations
}

// CostOnGrant returns the deletion cost that a pod gets in the write of labels that grants operate for
// its deletion; "" to leave the cost: PodOps did not begin the deletion, or another cost was set meanwhile.
func CostOnGrant(pod *corev1.Pod, labels map[string]string) string {
	_, grants := labels[appsv1alpha1.OperateLabelPrefix+"/"+appsv1alpha1.PodDeleteID]
	if !grants || !IsBegun(pod) || pod.Annotations[corev1.PodDeletionCost] != begunCost {
		return ""
	}
	return grantedCost
}

// Unpin returns the annotations that restore the deletion cost of a pod, unless another cost was
// set meanwhile. It returns nil for a pod that PodOps did not begin. Users may write the former cost: one
// that the API server does not accept is not restored, or no request could remove the annotation.
func Unpin(pod *corev1.Pod) map[string]any {
	previous, begun := pod.Annotations[appsv1alpha1.PreviousDeletionCostAnnotationKey]
	if !begun {
		return nil
	}
	annotations := map[string]any{appsv1alpha1.PreviousDeletionCostAnnotationKey: nil}
	switch {
	case !slices.Contains([]string{begunCost, grantedCost}, pod.Annotations[corev1.PodDeletionCost]):
	case !isDeletionCost(previous):
		annotations[corev1.PodDeletionCost] = nil
	default:
		annotations[corev1.PodDeletionCost] = previous
	}
	return annotations
}
