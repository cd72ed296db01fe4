package lint_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule/lint"
)

func TestOrder(t *testing.T) {
	one := intstr.FromInt32(1)
	for name, test := range map[string]struct {
		edit func(*appsv1alpha1.TransitionRule, *appsv1.StatefulSet)
		want bool
	}{
		"a label that a pod must have": {edit: func(*appsv1alpha1.TransitionRule, *appsv1.StatefulSet) {}, want: true},
		"a number of pods": {edit: func(rule *appsv1alpha1.TransitionRule, _ *appsv1.StatefulSet) {
			rule.LabelCheck, rule.AvailablePolicy = nil, &appsv1alpha1.AvailablePolicy{MaxUnavailableValue: &one}
		}},
		"a rule that is disabled": {edit: func(rule *appsv1alpha1.TransitionRule, _ *appsv1.StatefulSet) { rule.Disabled = true }},
		"a rule that is not enforced": {edit: func(rule *appsv1alpha1.TransitionRule, _ *appsv1.StatefulSet) {
			rule.Enforcement = appsv1alpha1.EnforcementDryRun
		}},
		"a rule for pods that return": {edit: func(rule *appsv1alpha1.TransitionRule, _ *appsv1.StatefulSet) {
			rule.Stage = appsv1alpha1.StagePostCheck
		}},
		"a filter for other pods": {edit: func(rule *appsv1alpha1.TransitionRule, _ *appsv1.StatefulSet) {
			rule.Filter = &appsv1alpha1.TransitionRuleFilter{LabelSelector: selector("app", metav1.LabelSelectorOpIn, "cart")}
		}},
		"other pods": {edit: func(_ *appsv1alpha1.TransitionRule, set *appsv1.StatefulSet) {
			set.Spec.Template.Labels["app"] = "cart"
		}},
		"pods that are not controlled": {edit: func(_ *appsv1alpha1.TransitionRule, set *appsv1.StatefulSet) {
			delete(set.Spec.Template.Labels, appsv1alpha1.ControlLabelKey)
		}},
		"one pod": {edit: func(_ *appsv1alpha1.TransitionRule, set *appsv1.StatefulSet) { set.Spec.Replicas = new(int32(1)) }},
		"pods that are replaced by hand": {edit: func(_ *appsv1alpha1.TransitionRule, set *appsv1.StatefulSet) {
			set.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
		}},
	} {
		t.Run(name, func(t *testing.T) {
			rule := requires(selector("role", metav1.LabelSelectorOpNotIn, "leader"))
			set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db"}}
			set.Spec.Replicas = new(int32(3))
			set.Spec.Template.Labels = map[string]string{"app": "db", appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue}
			test.edit(&rule, set)
			found := lint.Order(&appsv1alpha1.PodTransitionRule{Spec: appsv1alpha1.PodTransitionRuleSpec{
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}, Rules: []appsv1alpha1.TransitionRule{rule},
			}}, []*appsv1.StatefulSet{set})
			if (len(found) == 1) != test.want || len(found) > 1 || test.want && !strings.Contains(found[0].Message, "StatefulSet db ") {
				t.Errorf("found %v, want a finding: %t", found, test.want)
			}
		})
	}
}
