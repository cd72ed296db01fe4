package lifecycle

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// Condition is a condition of PodOps that is True on a pod.
type Condition struct {
	Type, Reason, Message string
}

// conditionStatuses returns the messages of PodOps' conditions that are True on a pod, by
// type; nil if none is True.
func conditionStatuses(pod *corev1.Pod) map[string]string {
	var messages map[string]string
	for i := range pod.Status.Conditions {
		condition := &pod.Status.Conditions[i]
		switch string(condition.Type) {
		case appsv1alpha1.ConditionInvalidLifecycle, appsv1alpha1.ConditionGateMissing:
		default:
			continue
		}
		if messages == nil {
			messages = map[string]string{}
		}
		messages[string(condition.Type)] = condition.Message
	}
	return messages
}

// syncConditions adds a condition for each error of the pod, and removes the conditions of
// resolved errors. On a pod without errors nothing is written.
func (m *machine) syncConditions() {
	if m.opts.LabelsOnly {
		return
	}
	wanted := map[string]Condition{}
	if m.facts.Controlled() {
		wanted = m.conditions()
	}
	for _, kind := range slices.Sorted(maps.Keys(wanted)) {
		if message, shown := m.facts.Conditions[kind]; !shown || message != wanted[kind].Message {
			m.out.Conditions = append(m.out.Conditions, wanted[kind])
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(m.facts.Conditions)) {
		if _, ok := wanted[kind]; !ok {
			m.out.RemoveConditions = append(m.out.RemoveConditions, kind)
		}
	}
}

// conditions returns the errors of a pod. A missing gate is reported together with the first
// permit, in the same write, and stays reported: a gate cannot be added.
func (m *machine) conditions() map[string]Condition {
	wanted := map[string]Condition{}
	if untyped := UntypedIDs(PodFacts{Labels: m.labels}); len(untyped) > 0 {
		wanted[appsv1alpha1.ConditionInvalidLifecycle] = Condition{
			appsv1alpha1.ConditionInvalidLifecycle, appsv1alpha1.ReasonInvalidLifecycle, UntypedText(untyped),
		}
	}
	_, shown := m.facts.Conditions[appsv1alpha1.ConditionGateMissing]
	if m.facts.Gate == GateMissing && (shown || m.busy()) {
		wanted[appsv1alpha1.ConditionGateMissing] = Condition{
			appsv1alpha1.ConditionGateMissing, appsv1alpha1.ReasonGateMissing, GateMissingText(),
		}
	}
	return wanted
}

// UntypedText describes the error of ids that are operating without a type; there is at least
// one.
func UntypedText(ids []string) string {
	text := fmt.Sprintf("label %s needs %s: nothing progresses without the type",
		label(appsv1alpha1.OperatingLabelPrefix, ids[0]), label(appsv1alpha1.OperationTypeLabelPrefix, ids[0]))
	if len(ids) > 1 {
		text += fmt.Sprintf(" (and %d more)", len(ids)-1)
	}
	return text
}

// GateMissingText describes the error of a pod without the gate.
func GateMissingText() string {
	return "the pod was created without the readiness gate " + appsv1alpha1.ServiceReadyGate +
		": only finalizers keep traffic off while it is operated on"
}
