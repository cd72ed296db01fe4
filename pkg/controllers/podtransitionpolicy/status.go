package podtransitionpolicy

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/runtime/text"
	"github.com/podops-dev/podops/pkg/state/policyusers"
)

// buildStatus returns the new status; policy is not modified. It differs from the present
// status only in changed parts, times of conditions included.
func buildStatus(
	policy *appsv1alpha1.PodTransitionPolicy, found inspection, users []policyusers.User, now time.Time,
) appsv1alpha1.PodTransitionPolicyStatus {
	status := *policy.Status.DeepCopy()
	status.ObservedGeneration = policy.Generation
	// A copy, because a client decodes the response of the API server into its argument.
	status.Problems = slices.Clone(found.problems[:min(len(found.problems), appsv1alpha1.MaxStatusProblems)])
	status.UserCount = int32(len(users))
	namespaces := sets.New[string]()
	for _, user := range users {
		namespaces.Insert(user.Object.Namespace)
	}
	status.UserNamespaceCount = int32(namespaces.Len())
	for _, condition := range conditions(found) {
		condition.ObservedGeneration = policy.Generation
		condition.LastTransitionTime = metav1.NewTime(now)
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	return status
}

// conditions returns the conditions Ready and Stalled.
func conditions(found inspection) []metav1.Condition {
	ready := metav1.Condition{
		Type: appsv1alpha1.ConditionReady, Status: metav1.ConditionTrue,
		Reason: appsv1alpha1.ReasonCompiled, Message: "the module compiles",
	}
	stalled := metav1.Condition{
		Type: appsv1alpha1.ConditionStalled, Status: metav1.ConditionFalse,
		Reason: appsv1alpha1.ReasonNotStalled, Message: "the policy needs no edit",
	}
	switch {
	case found.err != nil:
		ready.Status, ready.Reason = metav1.ConditionUnknown, appsv1alpha1.ReasonInspectionFailed
		ready.Message = text.Cut(found.err.Error(), maxMessage)
	case len(found.problems) > 0:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, appsv1alpha1.ReasonCompileFailed, summary(found.problems)
		switch found.problems[0].Code {
		case codeTooLarge:
			ready.Reason = appsv1alpha1.ReasonTooLarge
		case codeNotFound:
			ready.Reason = appsv1alpha1.ReasonPolicyNotFound
		}
		stalled.Status, stalled.Reason, stalled.Message = metav1.ConditionTrue, ready.Reason, ready.Message
	}
	return []metav1.Condition{ready, stalled}
}

// summary returns the first problem, and how many more there are.
func summary(problems []appsv1alpha1.PolicyProblem) string {
	first := problems[0]
	text := first.Code + ": " + first.Message
	if first.Row > 0 {
		text = fmt.Sprintf("%d:%d: %s", first.Row, first.Column, text)
	}
	if more := len(problems) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more, see status.problems)", more)
	}
	return text
}
