package spec

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/runtime/text"
)

// PermitsNone returns why an availablePolicy permits no pod while all pods are available and no more than desired, such as
// "has minAvailable 3 with 3 pods"; empty if it permits some. pods is how many pods there are, or are desired if that is higher; 0 if it is not
// known. Such a rule passes an available pod only while there are more pods than desired, as in a rollout with maxSurge. Admission, the
// condition Stalled and doctor report it.
func PermitsNone(policy *appsv1alpha1.AvailablePolicy, pods int) string {
	if policy == nil {
		return ""
	}
	if bound := policy.MaxUnavailableValue; bound != nil && (bound.String() == "0" || bound.String() == "0%") {
		return "has maxUnavailable " + bound.String()
	}
	bound := policy.MinAvailableValue
	if bound == nil {
		return ""
	}
	if bound.String() == "100%" && pods == 0 {
		return "has minAvailable 100%"
	}
	least, err := intstr.GetScaledValueFromIntOrPercent(bound, pods, true)
	if err != nil || pods == 0 || least < pods {
		return ""
	}
	return fmt.Sprintf("has minAvailable %s with %s", bound.String(), text.Count(pods, "pod"))
}

// Surges reports whether a Deployment starts another pod for a pod that an availablePolicy withholds.
func Surges(policy *appsv1alpha1.AvailablePolicy) bool {
	return policy != nil && policy.Surge != nil && policy.Surge.String() != "0" && policy.Surge.String() != "0%"
}

// PassesWithSurge returns what it means that an availablePolicy permits none of the desired pods, with the reason from PermitsNone.
func PassesWithSurge(why string) string {
	return "the rule " + why + ": an available pod passes only while there are more pods than desired, as in a rollout with maxSurge; " +
		"deletes and evictions of available pods wait unless it has surge"
}

// leastPercentage is the least count that may have been meant as a percentage.
const leastPercentage = 10

// PermitsAll returns why a count in an availablePolicy limits nothing while all pods are available, such as "permits all of 6 pods at once:
// maxUnavailableValue is 25; a percentage is written "25%""; empty if it limits them. A count for one pod is not reported. Admission and
// doctor report it.
func PermitsAll(policy *appsv1alpha1.AvailablePolicy, pods int) string {
	if policy == nil || policy.MaxUnavailableValue == nil || policy.MinAvailableValue != nil || pods < 2 {
		return ""
	}
	bound := policy.MaxUnavailableValue
	if bound.Type != intstr.Int || bound.IntValue() < pods {
		return ""
	}
	words := fmt.Sprintf("permits all of %d pods at once: maxUnavailableValue is %d", pods, bound.IntValue())
	if bound.IntValue() >= leastPercentage && bound.IntValue() <= 100 {
		words += fmt.Sprintf(`; a percentage is written "%d%%"`, bound.IntValue())
	}
	return words
}
