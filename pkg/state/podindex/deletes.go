package podindex

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/podstate"
	"github.com/podops-dev/podops/pkg/core/rule"
)

// GuardsDelete reports whether a PodTransitionRule selects a pod and has an enforced PreCheck rule
// that applies to its deletion.
func GuardsDelete(ruleset *appsv1alpha1.PodTransitionRule, pod *corev1.Pod) bool {
	return selects(ruleset, pod) && enforces(ruleset, pod, appsv1alpha1.DeleteOperationType)
}

// GuardsUpdate reports whether a PodTransitionRule selects a pod, and either denies updates in place without an
// operation, or has an enforced PreCheck rule that applies to an operation of another type than delete. An update
// without an operation has no type.
func GuardsUpdate(ruleset *appsv1alpha1.PodTransitionRule, pod *corev1.Pod) bool {
	if !selects(ruleset, pod) {
		return false
	}
	types := []string{updateType}
	for i := range ruleset.Spec.Rules {
		types = append(types, ruleset.Spec.Rules[i].Conditions...)
	}
	return ruleset.Spec.UnguardedUpdates == appsv1alpha1.UnguardedUpdatesDeny || slices.ContainsFunc(types, func(operationType string) bool {
		return operationType != appsv1alpha1.DeleteOperationType && enforces(ruleset, pod, operationType)
	})
}

// ChecksCreation reports whether a PodTransitionRule selects a pod and has a PostCheck rule that applies to its creation.
func ChecksCreation(ruleset *appsv1alpha1.PodTransitionRule, pod *corev1.Pod) bool {
	skipped := podstate.SkipRules(pod.Annotations)
	return slices.ContainsFunc(ruleset.Spec.Rules, func(r appsv1alpha1.TransitionRule) bool {
		return r.Stage == appsv1alpha1.StagePostCheck && !r.Disabled &&
			rule.NewScope(r).Applies(appsv1alpha1.CreateOperationType, pod.Labels, skipped)
	}) && selects(ruleset, pod)
}

// updateType is a type of operations that rules without conditions apply to.
const updateType = "update"

func selects(ruleset *appsv1alpha1.PodTransitionRule, pod *corev1.Pod) bool {
	selector, err := Selector(ruleset)
	return err == nil && selector.Matches(labels.Set(pod.Labels))
}

// enforces reports whether an enforced PreCheck rule applies to an operation of a type on the pod.
func enforces(ruleset *appsv1alpha1.PodTransitionRule, pod *corev1.Pod, operationType string) bool {
	skipped := podstate.SkipRules(pod.Annotations)
	return slices.ContainsFunc(ruleset.Spec.Rules, func(r appsv1alpha1.TransitionRule) bool {
		enforced := r.Enforcement == "" || r.Enforcement == appsv1alpha1.EnforcementEnforce
		return enforced && !r.Disabled && r.Stage != appsv1alpha1.StagePostCheck &&
			rule.NewScope(r).Applies(operationType, pod.Labels, skipped)
	})
}
