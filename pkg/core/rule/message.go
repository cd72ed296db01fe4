package rule

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/runtime/text"
)

// Explain returns a human-readable reason why a rule withholds a request with a code, or would
// withhold it if it were enforced. The text is the same for the same arguments, has no time in it,
// and is at most 512 bytes long. capacity is the capacity of the result that the code came from; it may
// be nil.
func Explain(code Code, rule appsv1alpha1.TransitionRule, request Request, capacity *Capacity) string {
	return text.Cut(explain(code, rule, request, capacity), MaxMessageBytes)
}

// Waits returns the sentence in which events and explanations report that an operation waits for a rule.
func Waits(operation, rule, message string, code Code) string {
	return fmt.Sprintf("%s waits for rule %s: %s (%s)", operation, rule, message, code)
}

func explain(code Code, rule appsv1alpha1.TransitionRule, request Request, capacity *Capacity) string {
	switch code {
	case CodeNoRoom:
		return explainCapacity(rule.AvailablePolicy, capacity)
	case CodeLabelMismatch:
		return explainLabels(rule.LabelCheck, request)
	case CodeNotApproved, CodeRevisionDenied:
		return explainApproval(rule.Approval, request.Approval)
	case CodeUndefined:
		return "the rule returned no verdict for this pod"
	case CodeEvaluationFailed:
		return "evaluating the rule failed; the conditions of the PodTransitionRule have the error"
	case CodeNotReached:
		return "the rules of the namespace used up the time of this round; a later round continues with this rule"
	case CodeCompileFailed:
		return "the rule does not compile; the conditions of the PodTransitionRule have the error"
	case CodeTooLarge:
		return "the PodTransitionRule exceeds its size bounds and is not loaded; its conditions name the bound"
	case CodeWebhookPending, CodeWebhookProcessing, CodeWebhookRejected, CodeWebhookFailed:
		return explainWebhook(code, request.Task)
	default:
		return fmt.Sprintf("the rule does not permit the pod and returned no reason (%s)", code)
	}
}

// explainCapacity returns each bound that leaves no slot for the request, with its numbers. If there are
// slots left, they went to other pods.
func explainCapacity(bounds *appsv1alpha1.AvailablePolicy, capacity *Capacity) string {
	if bounds == nil || capacity == nil {
		return "no more pods may become unavailable now"
	}
	reasons := []string{}
	if least := max(0, capacity.Desired-capacity.MaxUnavailable); capacity.MaxUnavailable >= 0 && capacity.Available-least <= capacity.Slots {
		reasons = append(reasons, fmt.Sprintf("at least %d must be (maxUnavailable%s, at most %d of %d desired pods)",
			least, spelled(bounds.MaxUnavailableValue), capacity.MaxUnavailable, capacity.Desired))
	}
	if capacity.MinAvailable >= 0 && capacity.Available-capacity.MinAvailable <= capacity.Slots {
		reasons = append(reasons, fmt.Sprintf("at least %d must be (minAvailable%s of %d desired)",
			capacity.MinAvailable, spelled(bounds.MinAvailableValue), capacity.Desired))
	}
	if len(reasons) == 0 {
		return "no more pods may become unavailable now"
	}
	return fmt.Sprintf("%s%d of %d pods are available; %s", turn(capacity.Slots), capacity.Available, capacity.Selected, strings.Join(reasons, "; "))
}

// turn returns the beginning of a message: the number of slots that go to pods that come first; empty
// for 0.
func turn(slots int) string {
	switch slots {
	case 0:
		return ""
	case 1:
		return "waits its turn, the next slot goes to another pod: "
	default:
		return fmt.Sprintf("waits its turn, the next %d slots go to other pods: ", slots)
	}
}

// spelled returns a bound as the rule has it, after a space; empty if it is not set.
func spelled(value *intstr.IntOrString) string {
	if value == nil {
		return ""
	}
	return " " + value.String()
}

// explainLabels returns each requirement that the labels of the pod do not meet, sorted by key.
func explainLabels(check *appsv1alpha1.LabelCheck, request Request) string {
	const nothing = "the labels of the pod do not match labelCheck.requires"
	if check == nil || check.Requires == nil || request.Pod == nil {
		return nothing
	}
	requirements := slices.Clone(check.Requires.MatchExpressions)
	for key, value := range check.Requires.MatchLabels {
		requirements = append(requirements, metav1.LabelSelectorRequirement{
			Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{value},
		})
	}
	unmet := []string{}
	for _, requirement := range requirements {
		if !meets(request.Pod.Labels, requirement) {
			unmet = append(unmet, explainLabel(request.Pod.Labels, requirement))
		}
	}
	if len(unmet) == 0 {
		return nothing
	}
	// Each text starts with its key. Two requirements may be the same.
	slices.Sort(unmet)
	return strings.Join(slices.Compact(unmet), "; ")
}

// meets evaluates the selector with the library of Kubernetes, so that a message never contradicts
// the selector that it explains.
func meets(pod map[string]string, requirement metav1.LabelSelectorRequirement) bool {
	selector, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{requirement},
	})
	return err == nil && selector.Matches(labels.Set(pod))
}

func explainLabel(pod map[string]string, requirement metav1.LabelSelectorRequirement) string {
	found := "missing"
	if value, present := pod[requirement.Key]; present {
		found = fmt.Sprintf("%q", value)
	}
	required := ""
	switch requirement.Operator {
	case metav1.LabelSelectorOpIn:
		required = quoted(requirement.Values) + " is required"
	case metav1.LabelSelectorOpNotIn:
		required = quoted(requirement.Values) + " is forbidden"
	case metav1.LabelSelectorOpExists:
		required = "any value is required"
	case metav1.LabelSelectorOpDoesNotExist:
		required = "it must not be there"
	}
	return fmt.Sprintf("label %s is %s, %s", requirement.Key, found, required)
}

// quoted returns the values in order: "a", "b" or "c".
func quoted(values []string) string {
	sorted := slices.Sorted(slices.Values(values))
	for i := range sorted {
		sorted[i] = fmt.Sprintf("%q", sorted[i])
	}
	if len(sorted) < 2 {
		return strings.Join(sorted, "")
	}
	last := len(sorted) - 1
	return strings.Join(sorted[:last], ", ") + " or " + sorted[last]
}
