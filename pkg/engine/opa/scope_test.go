package opa_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/engine/opa"
)

// TestScopeIsThatOfTheLibrary checks, for every combination, that rule.NewScope applies to the
// requests that the Rego library evaluates a rule for. The rule withholds all of them.
func TestScopeIsThatOfTheLibrary(t *testing.T) {
	filters := []*appsv1alpha1.TransitionRuleFilter{nil, {}, filterOn("app", "web"), filterOn("app", "db")}
	for _, operator := range []metav1.LabelSelectorOperator{metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist} {
		filters = append(filters, &appsv1alpha1.TransitionRuleFilter{LabelSelector: &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: operator}},
		}})
	}
	made := newEngine(t, opa.Options{})
	applied := map[bool]int{}
	for _, conditions := range [][]string{nil, {"update"}, {"delete", "restart"}} {
		for i, filter := range filters {
			entry := labelCheck("mine")
			entry.LabelCheck.Requires.MatchLabels = map[string]string{"unknown": "label"}
			entry.Conditions, entry.Filter = conditions, filter
			program, err := made.Prepare(t.Context(), compiled(t, entry))
			if err != nil {
				t.Fatal(err)
			}
			for at, skipped := range [][]string{nil, {"other"}, {"mine"}} {
				one := request(100*i+at, true)
				one.Pod.SkipRules = skipped
				result, err := program.Evaluate(t.Context(), program.Stage(), rule.Environment{}, []rule.Request{one})
				if err != nil {
					t.Fatal(err)
				}
				want := result.Verdicts[one.Key()].Outcome != rule.Passed
				applied[want]++
				if got := rule.NewScope(entry).Applies(one.Type, one.Pod.Labels, skipped); got != want {
					t.Errorf("conditions %v, filter %d, skipped %v: applies %t, want %t", conditions, i, skipped, got, want)
				}
			}
		}
	}
	if applied[true] == 0 || applied[false] == 0 {
		t.Errorf("one-sided: %v", applied)
	}
}
