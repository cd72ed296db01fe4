package rule

import (
	"math"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// WithholdsSome returns the names of the rules that never let all pods of a workload be deleted at
// once: enforced availability rules of PreCheck below 100 %. replicas is the size of the workload,
// podLabels are the labels of its pods, which skip the rules named by skipped.
func WithholdsSome(rules []appsv1alpha1.TransitionRule, replicas int, podLabels map[string]string, skipped []string) []string {
	var names []string
	for _, r := range rules {
		enforced := r.Enforcement == "" || r.Enforcement == appsv1alpha1.EnforcementEnforce
		if r.AvailablePolicy == nil || r.Disabled || !enforced || r.Stage == appsv1alpha1.StagePostCheck {
			continue
		}
		if keepsSome(r.AvailablePolicy, replicas) && NewScope(r).Applies(appsv1alpha1.DeleteOperationType, podLabels, skipped) {
			names = append(names, r.Name)
		}
	}
	return names
}

// keepsSome reports whether an availability rule keeps at least one of the replicas available.
func keepsSome(policy *appsv1alpha1.AvailablePolicy, replicas int) bool {
	if replicas == 0 {
		return false
	}
	return policy.MaxUnavailableValue != nil && bound(*policy.MaxUnavailableValue, replicas) < float64(replicas) ||
		policy.MinAvailableValue != nil && bound(*policy.MinAvailableValue, replicas) > 0
}

// bound returns a count, or a percentage of the replicas before it is rounded; NaN when it is
// neither.
func bound(value intstr.IntOrString, replicas int) float64 {
	if value.Type == intstr.Int {
		return float64(value.IntVal)
	}
	percent, err := strconv.Atoi(strings.TrimSuffix(value.StrVal, "%"))
	if err != nil {
		return math.NaN()
	}
	return float64(percent) / 100 * float64(replicas)
}
