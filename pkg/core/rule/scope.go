package rule

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// Scope is the set of requests that a rule applies to, for counting and naming rules. Verdicts come
// from the package podops.lib.applies of the Rego library; a property test compares the two.
type Scope struct {
	name   string
	types  []string
	filter labels.Selector
}

// BeginsOperation reports whether PodOps itself begins operations of a type before a stage: deletions in PreCheck, and creations
// in PostCheck.
func BeginsOperation(operationType string, stage appsv1alpha1.TransitionStage) bool {
	if stage == appsv1alpha1.StagePostCheck {
		return operationType == appsv1alpha1.CreateOperationType
	}
	return operationType == appsv1alpha1.DeleteOperationType
}

// NewScope returns the scope of a rule. A filter that cannot be read excludes no pod.
func NewScope(rule appsv1alpha1.TransitionRule) Scope {
	scope := Scope{name: rule.Name, types: rule.Conditions, filter: labels.Everything()}
	if rule.Filter == nil || rule.Filter.LabelSelector == nil {
		return scope
	}
	if filter, err := metav1.LabelSelectorAsSelector(rule.Filter.LabelSelector); err == nil {
		scope.filter = filter
	}
	return scope
}

// Applies reports whether the rule applies to an operation of a type on a pod with these labels,
// which skips the rules with these names.
func (s Scope) Applies(operationType string, podLabels map[string]string, skipped []string) bool {
	return !slices.Contains(skipped, s.name) &&
		(len(s.types) == 0 || slices.Contains(s.types, operationType)) &&
		s.filter.Matches(labels.Set(podLabels))
}
