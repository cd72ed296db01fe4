package podoperation

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// Event reasons on PodOperations. They never change. An operation has each of them at most once.
const (
	// EventStarted reports that the operation has started.
	EventStarted = "OperationStarted"

	// EventEnded reports that the operation has ended, with its result.
	EventEnded = "OperationEnded"
)

// recordProgress records the start and the end of an operation, by the status before and now.
func (r *Reconciler) recordProgress(operation *appsv1alpha1.PodOperation, before appsv1alpha1.PodOperationStatus) {
	status := &operation.Status
	if before.StartTime == nil && status.StartTime != nil {
		r.recorder.Eventf(operation, nil, corev1.EventTypeNormal, EventStarted, "Start", "%s of %d pods", operation.Spec.Action.Type, status.Total)
	}
	if before.CompletionTime != nil || status.CompletionTime == nil {
		return
	}
	kind, ready := corev1.EventTypeWarning, meta.FindStatusCondition(status.Conditions, appsv1alpha1.ConditionReady)
	if ready.Reason == appsv1alpha1.ReasonSucceeded || ready.Reason == appsv1alpha1.ReasonCancelled {
		kind = corev1.EventTypeNormal
	}
	r.recorder.Eventf(operation, nil, kind, EventEnded, "End", "%s: %s", ready.Reason, ready.Message)
}

// readyReason returns the reason of the condition Ready.
func readyReason(status appsv1alpha1.PodOperationStatus) string {
	if ready := meta.FindStatusCondition(status.Conditions, appsv1alpha1.ConditionReady); ready != nil {
		return ready.Reason
	}
	return ""
}
