package opa_test

import (
	"math"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
)

// reference decides like the Rego, in plain Go over the types of Kubernetes: slow, obvious, and
// without a line of the engine.
func reference(entry appsv1alpha1.TransitionRule, counts rule.Counts, requests []rule.Request) rule.Result {
	result := rule.Result{Verdicts: map[string]rule.Verdict{}}
	if entry.AvailablePolicy != nil {
		result.Capacity = referenceRoom(*entry.AvailablePolicy, counts)
	}
	for _, request := range requests {
		verdict := rule.Verdict{Outcome: rule.Passed}
		if referenceApplies(entry, request) {
			verdict = referenceVerdict(entry, request, result.Capacity)
		}
		result.Verdicts[request.Key()] = verdict
	}
	return result
}

func referenceApplies(rule appsv1alpha1.TransitionRule, request rule.Request) bool {
	if slices.Contains(request.Pod.SkipRules, rule.Name) {
		return false
	}
	if len(rule.Conditions) > 0 && !slices.Contains(rule.Conditions, request.Type) {
		return false
	}
	return rule.Filter == nil || rule.Filter.LabelSelector == nil || selects(rule.Filter.LabelSelector, request.Pod)
}

func referenceVerdict(
	entry appsv1alpha1.TransitionRule, request rule.Request, capacity *rule.Capacity,
) rule.Verdict {
	enforced := entry.Enforcement == appsv1alpha1.EnforcementEnforce || entry.Enforcement == ""
	passed := rule.Verdict{Outcome: rule.Passed}
	switch {
	case entry.Webhook != nil:
		verdict := referenceWebhook(entry.Webhook.FailurePolicy, request.Task)
		if !enforced && verdict.Outcome == rule.Withheld {
			verdict.Outcome, verdict.Would, verdict.Code = rule.Passed, verdict.Code, ""
		}
		return verdict
	case entry.LabelCheck != nil && selects(entry.LabelCheck.Requires, request.Pod):
		return passed
	case entry.LabelCheck != nil && enforced:
		return rule.Verdict{Code: rule.CodeLabelMismatch}
	case entry.LabelCheck != nil:
		return rule.Verdict{Outcome: rule.Passed, Would: rule.CodeLabelMismatch}
	case !request.Pod.Available:
		return passed
	case enforced:
		return rule.Verdict{Outcome: rule.NeedsSlot}
	case capacity.Slots == 0:
		return rule.Verdict{Outcome: rule.Passed, Would: rule.CodeNoRoom}
	}
	return passed
}

// referenceWebhook returns the verdict of an enforced rule.
func referenceWebhook(failures appsv1alpha1.FailurePolicy, task rule.Task) rule.Verdict {
	answers := []string{"Rejected", "Stopped", "Expired"}
	ours := slices.Contains([]string{"Busy", "Canceled", "Interrupted", "Internal", "Unheard"}, task.Class)
	switch task.State {
	case "":
		return rule.Verdict{Code: rule.CodeWebhookPending, Call: true}
	case rule.TaskCalling:
		return rule.Verdict{Code: rule.CodeWebhookPending}
	case rule.TaskPolling:
		return rule.Verdict{Code: rule.CodeWebhookProcessing}
	case rule.TaskApproved:
		return rule.Verdict{Outcome: rule.Passed}
	case rule.TaskFailed:
	}
	switch {
	case failures == appsv1alpha1.FailurePolicyIgnore && !ours && !task.Answered && !slices.Contains(answers, task.Class):
		return rule.Verdict{Outcome: rule.Passed}
	case slices.Contains(answers, task.Class):
		return rule.Verdict{Code: rule.CodeWebhookRejected, Call: task.RetryDue}
	default:
		return rule.Verdict{Code: rule.CodeWebhookFailed, Call: task.RetryDue}
	}
}

func referenceRoom(bounds appsv1alpha1.AvailablePolicy, counts rule.Counts) *rule.Capacity {
	capacity := &rule.Capacity{Selected: counts.Selected, Desired: counts.Desired, MaxUnavailable: -1, MinAvailable: -1}
	capacity.Available = counts.Available - counts.Reserved
	capacity.Slots = math.MaxInt // at least one bound is set
	if bounds.MaxUnavailableValue != nil {
		capacity.MaxUnavailable = max(1, scaled(bounds.MaxUnavailableValue, counts.Desired, false))
		capacity.Slots = min(capacity.Available, capacity.Available+capacity.MaxUnavailable-counts.Desired)
	}
	if bounds.MinAvailableValue != nil {
		capacity.MinAvailable = scaled(bounds.MinAvailableValue, counts.Desired, true)
		capacity.Slots = min(capacity.Slots, capacity.Available-capacity.MinAvailable)
	}
	capacity.Slots = max(0, capacity.Slots)
	return capacity
}

func scaled(value *intstr.IntOrString, base int, roundUp bool) int {
	count, err := intstr.GetScaledValueFromIntOrPercent(value, base, roundUp)
	if err != nil {
		panic(err)
	}
	return count
}

func selects(selector *metav1.LabelSelector, pod *rule.PodFact) bool {
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		panic(err)
	}
	return parsed.Matches(labels.Set(pod.Labels))
}
