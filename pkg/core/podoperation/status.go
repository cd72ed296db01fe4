package podoperation

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/runtime/text"
)

// maxConditionBytes bounds the messages of conditions.
const maxConditionBytes = 512

// listed returns the states in the order in which the status lists pods.
func listed() []appsv1alpha1.PodOperationState {
	return []appsv1alpha1.PodOperationState{
		appsv1alpha1.PodFailed, appsv1alpha1.PodOperating, appsv1alpha1.PodCompleting, appsv1alpha1.PodPreparing, appsv1alpha1.PodWaiting,
	}
}

// list returns the first pods that have failed, are in operation or wait.
func (r *round) list() []appsv1alpha1.PodOperationPod {
	var pods []appsv1alpha1.PodOperationPod
	for _, state := range listed() {
		for i := range r.targets {
			if t := &r.targets[i]; t.state == state && len(pods) < appsv1alpha1.MaxStatusPods {
				pods = append(pods, appsv1alpha1.PodOperationPod{
					Name: t.pod.Name, State: t.state, Message: text.Line(t.message, appsv1alpha1.MaxPodMessageBytes),
				})
			}
		}
	}
	return pods
}

// describe writes the conditions.
func describe(status *appsv1alpha1.PodOperationStatus, reason string, s Snapshot) {
	message := text.Line(readyMessage(status, reason, s), maxConditionBytes)
	isOver := status.CompletionTime != nil
	stops := slices.Contains([]string{
		appsv1alpha1.ReasonPodsFailed, appsv1alpha1.ReasonNoTargets, appsv1alpha1.ReasonCancelled,
		appsv1alpha1.ReasonDeadlineExceeded, appsv1alpha1.ReasonInvalidTarget,
	}, reason)
	for kind, isTrue := range map[string]bool{
		appsv1alpha1.ConditionReady:       isOver && reason == appsv1alpha1.ReasonSucceeded,
		appsv1alpha1.ConditionReconciling: !isOver,
		appsv1alpha1.ConditionStalled:     isOver && stops,
	} {
		condition := metav1.Condition{
			Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message,
			ObservedGeneration: status.ObservedGeneration, LastTransitionTime: metav1.NewTime(s.Now),
		}
		if isTrue {
			condition.Status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	slices.SortFunc(status.Conditions, func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) })
}

// readyMessage explains a reason.
func readyMessage(status *appsv1alpha1.PodOperationStatus, reason string, s Snapshot) string {
	progress := fmt.Sprintf("%d of %d pods have been operated on", status.Succeeded, status.Total)
	switch reason {
	case appsv1alpha1.ReasonInvalidTarget:
		return s.Invalid
	case appsv1alpha1.ReasonNoTargets:
		return "spec.target names no running pod with the label kusionstack.io/control=true that is older than the operation"
	case appsv1alpha1.ReasonQueued:
		return fmt.Sprintf("%d operations of the namespace are in progress", appsv1alpha1.MaxActivePodOperations)
	case appsv1alpha1.ReasonSuspended:
		return progress + "; spec.suspend is set"
	case appsv1alpha1.ReasonPartitioned:
		return fmt.Sprintf("%s; spec.partition leaves %d as they are", progress, status.Waiting)
	case appsv1alpha1.ReasonPodsFailed:
		return fmt.Sprintf("%s; %d failed, so no further pod is operated on", progress, status.Failed)
	case appsv1alpha1.ReasonDeadlineExceeded:
		return progress + " within spec.deadlineSeconds"
	}
	if status.StartTime == nil {
		return "the operation has not started"
	}
	if status.Gone > 0 {
		return fmt.Sprintf("%s; %d are gone", progress, status.Gone)
	}
	return progress
}
