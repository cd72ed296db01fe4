package podtransitionrule

import (
	"fmt"
	"math"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/engine/evaluation"
	printable "github.com/podops-dev/podops/pkg/runtime/text"
	"github.com/podops-dev/podops/pkg/state/podindex"
)

// describe sets all of a status but its record of permits.
func describe(status *appsv1alpha1.PodTransitionRuleStatus, rule podindex.RuleView, o evaluation.Outcome, targets []string, now metav1.Time) {
	status.ObservedGeneration = rule.Object.Generation
	status.Selected = int32(rule.Counts.Selected)
	status.Desired = int32(min(rule.Counts.Desired, math.MaxInt32))
	status.Available = int32(rule.Counts.Available)
	status.Waiting = int32(rule.WaitingPods)
	status.OffTraffic = int32(rule.OffTraffic)
	status.Targets = targets
	status.Blocked = blocked(rule, o)
	status.BlockedBy = blockedBy(rule.Object.Name, status.Blocked)
	status.Rules = o.Rulesets[rule.Object.Name].Statuses()
	status.RuleStates = o.Rulesets[rule.Object.Name].States()
	if o.Rulesets[rule.Object.Name].BreakGlass == "" {
		meta.RemoveStatusCondition(&status.Conditions, appsv1alpha1.ConditionBreakGlass)
	}
	current := conditions(rule, o.Rulesets[rule.Object.Name])
	if o.Frozen != "" {
		current = append(current, metav1.Condition{
			Type: appsv1alpha1.ConditionFrozen, Status: metav1.ConditionTrue, Reason: appsv1alpha1.ReasonAnnotated,
			Message: printable.Prefix("no pod gets a permit: "+o.Frozen, maxConditionBytes),
		})
	} else {
		meta.RemoveStatusCondition(&status.Conditions, appsv1alpha1.ConditionFrozen)
	}
	if len(rule.Unreadable) > 0 {
		current = append(current, uncounted(rule.Unreadable))
	} else {
		meta.RemoveStatusCondition(&status.Conditions, appsv1alpha1.ConditionOwnersCounted)
	}
	if guarded := guarding(rule.Unguarded); guarded != nil {
		current = append(current, *guarded)
	} else {
		meta.RemoveStatusCondition(&status.Conditions, appsv1alpha1.ConditionGuarded)
	}
	for _, condition := range current {
		condition.ObservedGeneration = rule.Object.Generation
		condition.LastTransitionTime = now
		meta.SetStatusCondition(&status.Conditions, condition)
	}
}

// blockedBy returns the rule that the first of the pods waits for, and the reason.
func blockedBy(object string, pods []appsv1alpha1.BlockedPod) string {
	if len(pods) == 0 {
		return ""
	}
	return fmt.Sprintf("%s (%s)", strings.TrimPrefix(pods[0].Rule, object+"/"), pods[0].Reason)
}

// blocked returns the first requests that a rule of this PodTransitionRule withholds.
func blocked(rule podindex.RuleView, o evaluation.Outcome) []appsv1alpha1.BlockedPod {
	var list []appsv1alpha1.BlockedPod
	for _, request := range rule.Waiting {
		for _, reason := range o.Reasons(request.Key()) {
			if reason.Rule.Ruleset.Name != rule.Object.Name {
				continue
			}
			if len(list) == appsv1alpha1.MaxStatusBlocked {
				return list
			}
			list = append(list, newBlockedPod(request, reason))
			break
		}
	}
	return list
}

// conditions returns whether the rules of a PodTransitionRule can be evaluated.
func conditions(rule podindex.RuleView, object *evaluation.Ruleset) []metav1.Condition {
	ready := metav1.Condition{
		Type: appsv1alpha1.ConditionReady, Status: metav1.ConditionTrue,
		Reason: appsv1alpha1.ReasonEvaluated, Message: "every rule is compiled and evaluated",
	}
	stalled := metav1.Condition{
		Type: appsv1alpha1.ConditionStalled, Status: metav1.ConditionFalse,
		Reason: appsv1alpha1.ReasonNotStalled, Message: "no rule needs an edit",
	}
	reconciling := metav1.Condition{
		Type: appsv1alpha1.ConditionReconciling, Status: metav1.ConditionFalse,
		Reason: appsv1alpha1.ReasonEvaluated, Message: "the newest generation has been evaluated",
	}
	switch {
	case object.CompileErr != nil:
		reason, message := reasonFor(object.CompileErr), printable.Prefix(object.CompileErr.Error(), maxConditionBytes)
		set(&ready, metav1.ConditionFalse, reason, message)
		set(&stalled, metav1.ConditionTrue, reason, message)
		reconciling.Reason = reason
	case len(object.Quarantined()) > 0:
		message := printable.Prefix(strings.Join(object.Quarantined(), "; "), maxConditionBytes)
		set(&ready, metav1.ConditionFalse, appsv1alpha1.ReasonPolicyTooExpensive, message)
		set(&stalled, metav1.ConditionTrue, appsv1alpha1.ReasonPolicyTooExpensive, message)
		reconciling.Reason = appsv1alpha1.ReasonPolicyTooExpensive
	case object.EvaluateErr != nil:
		// It is evaluated again (retryFailed): no edit is needed.
		message := printable.Prefix(object.EvaluateErr.Error(), maxConditionBytes)
		set(&ready, metav1.ConditionFalse, appsv1alpha1.ReasonEvaluationFailed, message)
		set(&reconciling, metav1.ConditionTrue, appsv1alpha1.ReasonEvaluationFailed, "a rule is evaluated again until it returns a verdict")
	case len(object.NeverPasses) > 0 && rule.MaySurge:
		stalled.Reason, stalled.Message = appsv1alpha1.ReasonPassesWithSurge, printable.Prefix(fmt.Sprintf(
			"rule %s permits an available pod only while there are more than the %d desired pods, as in a rollout with maxSurge: "+
				"deletes and evictions of available pods wait unless it has surge",
			strings.Join(object.NeverPasses, ", "), rule.Counts.Desired), maxConditionBytes)
	case len(object.NeverPasses) > 0:
		set(&stalled, metav1.ConditionTrue, appsv1alpha1.ReasonNeverPasses, printable.Prefix(fmt.Sprintf(
			"rule %s permits no pod even with all of the %d pods available: no available pod will ever pass it",
			strings.Join(object.NeverPasses, ", "), max(rule.Counts.Desired, rule.Counts.Selected)), maxConditionBytes))
	case len(rule.NeverFinish) > 0:
		set(&stalled, metav1.ConditionTrue, appsv1alpha1.ReasonNeverFinishes, printable.Prefix(fmt.Sprintf(
			"Deployment %s of the strategy Recreate never finishes a rollout under an availability rule below 100 %%, since it creates no new pod "+
				"before every old pod is deleted: use RollingUpdate, or exempt its pods by the rule's filter or conditions, or by the annotation %s",
			strings.Join(rule.NeverFinish, ", "), appsv1alpha1.SkipRulesAnnotationKey), maxConditionBytes))
	}
	all := []metav1.Condition{ready, reconciling, stalled, selecting(rule.Counts.Selected)}
	if object.BreakGlass != "" {
		all = append(all, metav1.Condition{
			Type: appsv1alpha1.ConditionBreakGlass, Status: metav1.ConditionTrue,
			Reason: appsv1alpha1.ReasonAnnotated, Message: "every pod passes the PreCheck rules: " + object.BreakGlass,
		})
	}
	return all
}

// selecting returns whether the selector of a PodTransitionRule matches any pod: a selector with a typing
// error compiles like any other.
func selecting(pods int) metav1.Condition {
	if pods > 0 {
		return metav1.Condition{
			Type: appsv1alpha1.ConditionSelecting, Status: metav1.ConditionTrue,
			Reason: appsv1alpha1.ReasonPodsSelected, Message: "the selector matches pods",
		}
	}
	return metav1.Condition{
		Type: appsv1alpha1.ConditionSelecting, Status: metav1.ConditionFalse,
		Reason: appsv1alpha1.ReasonNoPodSelected, Message: fmt.Sprintf(
			"the selector matches no pod of the namespace that has the label %s: %s", appsv1alpha1.ControlLabelKey, appsv1alpha1.ControlLabelValue),
	}
}

// uncounted returns the condition for workloads whose numbers cannot be read. It names the first.
func uncounted(owners []podindex.Owner) metav1.Condition {
	first := owners[0]
	message := fmt.Sprintf("%s %s: %s", first.Kind, first.Name, first.Unreadable)
	if others := len(owners) - 1; others > 0 {
		message = fmt.Sprintf("%s (and %d more)", message, others)
	}
	return metav1.Condition{
		Type: appsv1alpha1.ConditionOwnersCounted, Status: metav1.ConditionFalse, Reason: appsv1alpha1.ReasonOwnerUnreadable,
		Message: printable.Line(message+"; the pods that it had when its last permit was given count", maxConditionBytes),
	}
}

// guarding returns the condition of a PodTransitionRule that selects pods which PodOps cannot guard; nil when
// it selects no such pod.
func guarding(unguarded podindex.Unguarded) *metav1.Condition {
	mirrors := fmt.Sprintf("%d mirror pods of static pods, which only their kubelet stops", unguarded.Mirrors)
	gateless := fmt.Sprintf("%d pods without the readiness gate %s, created while the webhook of PodOps was unavailable or before it was installed: "+
		"only finalizers keep their traffic off; delete them to have them created with it", unguarded.Gateless, appsv1alpha1.ServiceReadyGate)
	reason, message := appsv1alpha1.ReasonGateMissing, gateless
	switch {
	case unguarded.Mirrors > 0 && unguarded.Gateless > 0:
		message += "; and " + mirrors
	case unguarded.Mirrors > 0:
		reason, message = appsv1alpha1.ReasonMirrorPods, mirrors
	case unguarded.Gateless == 0:
		return nil
	}
	names := strings.Join(unguarded.Names, ", ")
	if more := unguarded.Mirrors + unguarded.Gateless - len(unguarded.Names); more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return &metav1.Condition{
		Type: appsv1alpha1.ConditionGuarded, Status: metav1.ConditionFalse, Reason: reason,
		Message: printable.Prefix("the selector matches "+message+": "+names, maxConditionBytes),
	}
}

func set(condition *metav1.Condition, status metav1.ConditionStatus, reason, message string) {
	condition.Status, condition.Reason, condition.Message = status, reason, message
}

// maxConditionBytes bounds the message of a condition.
const maxConditionBytes = 1024

// reasonFor returns the condition reason of a rule that cannot be evaluated.
func reasonFor(err error) string {
	switch evaluation.ErrorCode(err) {
	case rule.CodePolicyNotFound:
		return appsv1alpha1.ReasonPolicyNotFound
	case rule.CodeInvalidParameters:
		return appsv1alpha1.ReasonInvalidParameters
	case rule.CodeTooLarge:
		return appsv1alpha1.ReasonTooLarge
	default:
		return appsv1alpha1.ReasonCompileFailed
	}
}
