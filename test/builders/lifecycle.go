package builders

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// Gateless removes the readiness gate, as on a pod that is older than PodOps.
func (b *PodBuilder) Gateless() *PodBuilder {
	b.pod.Spec.ReadinessGates = slices.DeleteFunc(b.pod.Spec.ReadinessGates, func(gate corev1.PodReadinessGate) bool {
		return gate.ConditionType == appsv1alpha1.ServiceReadyGate
	})
	return b
}

// Gate writes the condition of the readiness gate.
func (b *PodBuilder) Gate(open bool) *PodBuilder {
	return b.Condition(appsv1alpha1.ServiceReadyGate, open, "", Epoch)
}

// Ready makes the pod Ready since Epoch.
func (b *PodBuilder) Ready() *PodBuilder { return b.ReadySince(Epoch) }

// ReadySince makes the pod Ready since a time, its containers with it.
func (b *PodBuilder) ReadySince(at time.Time) *PodBuilder {
	return b.Condition(corev1.ContainersReady, true, "", at).Condition(corev1.PodReady, true, "", at)
}

// Unready makes the pod not Ready since a time because its containers are not.
func (b *PodBuilder) Unready(at time.Time) *PodBuilder {
	return b.Condition(corev1.ContainersReady, false, "ContainersNotReady", at).
		Condition(corev1.PodReady, false, "ContainersNotReady", at)
}

// UnreadyByGate makes the pod not Ready since a time because of readiness gates alone, as
// the kubelet reports it.
func (b *PodBuilder) UnreadyByGate(at time.Time) *PodBuilder {
	return b.Condition(corev1.ContainersReady, true, "", at).
		Condition(corev1.PodReady, false, "ReadinessGatesNotReady", at)
}

// Condition sets a condition of the pod.
func (b *PodBuilder) Condition(kind corev1.PodConditionType, on bool, reason string, at time.Time) *PodBuilder {
	condition := corev1.PodCondition{Type: kind, Status: corev1.ConditionFalse, Reason: reason, LastTransitionTime: metav1.NewTime(at)}
	if on {
		condition.Status = corev1.ConditionTrue
	}
	status := &b.pod.Status
	status.Conditions = slices.DeleteFunc(status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	status.Conditions = append(status.Conditions, condition)
	return b
}

// Available makes the pod available: gate True, Ready, service-available.
func (b *PodBuilder) Available() *PodBuilder {
	return b.Gate(true).Ready().Label(appsv1alpha1.ServiceAvailableLabelKey, Stamp(Epoch))
}

// Operating begins an operation, as its controller does, before admission has answered.
func (b *PodBuilder) Operating(id, operationType string) *PodBuilder {
	return b.id(id, appsv1alpha1.OperatingLabelPrefix).Label(appsv1alpha1.OperationTypeLabelPrefix+"/"+id, operationType)
}

// Waiting adds an id that waits for the PreCheck rules. Its generation is Stamp(since).
func (b *PodBuilder) Waiting(id, operationType string, since time.Time) *PodBuilder {
	return b.Operating(id, operationType).Label(appsv1alpha1.PreCheckLabelPrefix+"/"+id, Stamp(since))
}

// Preparing adds an id that was permitted; the gate is False.
func (b *PodBuilder) Preparing(id, operationType string) *PodBuilder {
	return b.permitted(id, operationType).id(id, appsv1alpha1.PrepareLabelPrefix, appsv1alpha1.PreparingLabelPrefix)
}

// Allowed adds an id that may operate; the gate is False.
func (b *PodBuilder) Allowed(id, operationType string) *PodBuilder {
	return b.permitted(id, operationType).id(id, appsv1alpha1.OperateLabelPrefix)
}

// Finished adds an id that waits for the PostCheck rules; the gate is False. Its generation
// is Stamp(since).
func (b *PodBuilder) Finished(id, operationType string, since time.Time) *PodBuilder {
	return b.Gate(false).finished(id, operationType).Label(appsv1alpha1.PostCheckLabelPrefix+"/"+id, Stamp(since))
}

// Complete adds an id that waits for the pod to become available; the gate is True.
func (b *PodBuilder) Complete(id, operationType string) *PodBuilder {
	return b.Gate(true).finished(id, operationType).
		id(id, appsv1alpha1.PostCheckedLabelPrefix, appsv1alpha1.CompleteLabelPrefix, appsv1alpha1.CompletingLabelPrefix)
}

// StayOffline keeps the pod without traffic.
func (b *PodBuilder) StayOffline() *PodBuilder {
	return b.Label(appsv1alpha1.StayOfflineLabelKey, "true")
}

func (b *PodBuilder) permitted(id, operationType string) *PodBuilder {
	return b.Gate(false).Operating(id, operationType).id(id, appsv1alpha1.PreCheckedLabelPrefix).
		Label(appsv1alpha1.OperationPermissionLabelPrefix+"/"+operationType, Stamp(Epoch))
}

func (b *PodBuilder) finished(id, operationType string) *PodBuilder {
	return b.id(id, appsv1alpha1.OperatedLabelPrefix).Label(appsv1alpha1.DoneOperationTypeLabelPrefix+"/"+id, operationType)
}

// id sets labels of an id to Epoch.
func (b *PodBuilder) id(id string, prefixes ...string) *PodBuilder {
	for _, prefix := range prefixes {
		b.Label(prefix+"/"+id, Stamp(Epoch))
	}
	return b
}
