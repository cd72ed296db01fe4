package engine_test

import (
	"math"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/policy"
)

// reference answers as the Rego does, in plain Go over the types of Kubernetes: slow, obvious, and
// sharing no line with the engine.
func reference(rule appsv1alpha1.TransitionRule, counts policy.Counts, requests []policy.Request) policy.Result {
	result := policy.Result{Verdicts: map[string]policy.Verdict{}}
	if rule.AvailablePolicy != nil {
		result.Room = referenceRoom(*rule.AvailablePolicy, counts)
	}
	for _, request := range requests {
		verdict := policy.Verdict{Outcome: policy.Passed}
		if referenceApplies(rule, request) {
			verdict = referenceVerdict(rule, request, result.Room)
		}
		result.Verdicts[request.Key()] = verdict
	}
	return result
}

func referenceApplies(rule appsv1alpha1.TransitionRule, request policy.Request) bool {
	if slices.Contains(request.Pod.SkipRules, rule.Name) {
		return false
	}
	if len(rule.Conditions) > 0 && !slices.Contains(rule.Conditions, request.Type) {
		return false
	}
	return rule.Filter == nil || rule.Filter.LabelSelector == nil || selects(rule.Filter.LabelSelector, request.Pod)
}

func referenceVerdict(
	rule appsv1alpha1.TransitionRule, request policy.Request, room *policy.Room,
) policy.Verdict {
	enforced := rule.Enforcement == appsv1alpha1.EnforcementEnforce || rule.Enforcement == ""
	passed := policy.Verdict{Outcome: policy.Passed}
	switch {
	case rule.Webhook != nil:
		verdict := referenceWebhook(rule.Webhook.FailurePolicy, request.Task)
		if !enforced && verdict.Outcome == policy.Withheld {
			verdict.Outcome, verdict.Would, verdict.Code = policy.Passed, verdict.Code, ""
		}
		return verdict
	case rule.LabelCheck != nil && selects(rule.LabelCheck.Requires, request.Pod):
		return passed
	case rule.LabelCheck != nil && enforced:
		return policy.Verdict{Code: policy.CodeLabelMismatch}
	case rule.LabelCheck != nil:
		return policy.Verdict{Outcome: policy.Passed, Would: policy.CodeLabelMismatch}
	case !request.Pod.Available:
		return passed
	case enforced:
		return policy.Verdict{Outcome: policy.NeedsSlot}
	case room.Slots == 0:
		return policy.Verdict{Outcome: policy.Passed, Would: policy.CodeNoRoom}
	}
	return passed
}

// referenceWebhook is the verdict of an enforced rule.
func referenceWebhook(failures appsv1alpha1.FailurePolicy, task policy.Task) policy.Verdict {
	ours := slices.Contains([]string{"Rejected", "Stopped", "Busy", "Canceled", "Interrupted", "Internal", "Unheard"}, task.Class)
	switch task.State {
	case "":
		return policy.Verdict{Code: policy.CodeWebhookPending, Call: true}
	case policy.TaskCalling:
		return policy.Verdict{Code: policy.CodeWebhookPending}
	case policy.TaskPolling:
		return policy.Verdict{Code: policy.CodeWebhookProcessing}
	case policy.TaskApproved:
		return policy.Verdict{Outcome: policy.Passed}
	case policy.TaskFailed:
	}
	switch {
	case failures == appsv1alpha1.FailurePolicyIgnore && !ours:
		return policy.Verdict{Outcome: policy.Passed}
	case slices.Contains([]string{"Rejected", "Stopped", "Expired"}, task.Class):
		return policy.Verdict{Code: policy.CodeWebhookRejected, Call: task.RetryDue}
	default:
		return policy.Verdict{Code: policy.CodeWebhookFailed, Call: task.RetryDue}
	}
}

func referenceRoom(bounds appsv1alpha1.AvailablePolicy, counts policy.Counts) *policy.Room {
	room := &policy.Room{Total: max(counts.Desired, counts.Selected), MaxUnavailable: -1, MinAvailable: -1}
	room.Available = counts.Available - counts.Reserved
	room.Unavailable = room.Total - room.Available
	room.Slots = math.MaxInt // at least one bound is set
	if bounds.MaxUnavailableValue != nil {
		base := counts.Desired
		if base == 0 {
			base = counts.Selected
		}
		room.MaxUnavailable = max(1, scaled(bounds.MaxUnavailableValue, base, false))
		room.Slots = min(room.Slots, room.MaxUnavailable-room.Unavailable)
	}
	if bounds.MinAvailableValue != nil {
		room.MinAvailable = scaled(bounds.MinAvailableValue, counts.Desired, true)
		room.Slots = min(room.Slots, room.Available-room.MinAvailable)
	}
	room.Slots = max(0, room.Slots)
	return room
}

func scaled(value *intstr.IntOrString, base int, roundUp bool) int {
	count, err := intstr.GetScaledValueFromIntOrPercent(value, base, roundUp)
	if err != nil {
		panic(err)
	}
	return count
}

func selects(selector *metav1.LabelSelector, pod *policy.PodFact) bool {
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		panic(err)
	}
	return parsed.Matches(labels.Set(pod.Labels))
}
