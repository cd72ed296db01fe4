package lint_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule/lint"
)

func selector(key string, operator metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
}

func requires(selector *metav1.LabelSelector) appsv1alpha1.TransitionRule {
	return appsv1alpha1.TransitionRule{LabelCheck: &appsv1alpha1.LabelCheck{Requires: selector}}
}

func TestRule(t *testing.T) {
	all := intstr.FromString("100%")
	filtered := requires(selector("ready", metav1.LabelSelectorOpExists))
	filtered.Filter = &appsv1alpha1.TransitionRuleFilter{LabelSelector: selector("app", metav1.LabelSelectorOpNotIn, "web")}
	soft := requires(selector("ready", metav1.LabelSelectorOpExists))
	soft.Enforcement = appsv1alpha1.EnforcementDryRun
	disabled := appsv1alpha1.TransitionRule{Disabled: true}
	for name, test := range map[string]struct {
		rules []appsv1alpha1.TransitionRule
		want  []string
	}{
		"nothing": {rules: []appsv1alpha1.TransitionRule{requires(selector("ready", metav1.LabelSelectorOpIn, "true"))}},
		"requires what the selector excludes": {
			rules: []appsv1alpha1.TransitionRule{requires(selector("app", metav1.LabelSelectorOpIn, "cart", "shop"))}, want: []string{lint.NeverPasses},
		},
		"requires a label that must not be there": {
			rules: []appsv1alpha1.TransitionRule{requires(selector("app", metav1.LabelSelectorOpDoesNotExist))}, want: []string{lint.NeverPasses},
		},
		"all must be available": {
			rules: []appsv1alpha1.TransitionRule{{AvailablePolicy: &appsv1alpha1.AvailablePolicy{MinAvailableValue: &all}}}, want: []string{lint.PassesWithSurge},
		},
		"a filter against the selector": {rules: []appsv1alpha1.TransitionRule{filtered}, want: []string{lint.FilterMatchesNoPod}},
		"another operation": {
			rules: []appsv1alpha1.TransitionRule{{Conditions: []string{"delete", "updte"}}}, want: []string{lint.UnknownOperation},
		},
		"not enforced": {
			rules: []appsv1alpha1.TransitionRule{soft, disabled}, want: []string{lint.DisabledRule, lint.NoEnforcedRule},
		},
		"no effect": {
			rules: []appsv1alpha1.TransitionRule{{Stage: appsv1alpha1.StagePostCheck, ExemptRevisions: appsv1alpha1.ExemptOutdated}},
			want:  []string{lint.ExemptsWithoutStage},
		},
	} {
		t.Run(name, func(t *testing.T) {
			object := &appsv1alpha1.PodTransitionRule{Spec: appsv1alpha1.PodTransitionRuleSpec{
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Rules: test.rules,
			}}
			var got []string
			for _, finding := range lint.Rule(object) {
				got = append(got, finding.ID)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
