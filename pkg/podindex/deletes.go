package podindex

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/podstate"
	"github.com/podops-dev/podops/pkg/rule"
)

// GuardsDelete reports whether a PodTransitionRule selects a pod and has an enforced PreCheck rule
// that applies to its deletion.
func GuardsDelete(ruleset *appsv1alpha1.PodTransitionRule, pod *corev1.Pod) bool {
	selector, err := Selector(ruleset)
	if err != nil || !selector.Matches(labels.Set(pod.Labels)) {
		return false
	}
	skipped := podstate.SkipRules(pod.Annotations)
	return slices.ContainsFunc(ruleset.Spec.Rules, func(r appsv1alpha1.TransitionRule) bool {
		enforced := r.Enforcement == "" || r.Enforcement == appsv1alpha1.EnforcementEnforce
		return enforced && !r.Disabled && r.Stage != appsv1alpha1.StagePostCheck &&
			rule.ScopeOf(r).Applies(appsv1alpha1.DeleteOperationType, pod.Labels, skipped)
	})
}
