package opa_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/engine/opa"
)

// counted is a program with a counter of the evaluations of Rego.
func counted(t *testing.T, rule appsv1alpha1.TransitionRule) (*opa.Program, func() int) {
	t.Helper()
	evaluations := 0
	e := newEngine(t, opa.Options{Observe: func(o opa.Observation) { evaluations += o.Evaluations }})
	program, err := e.Prepare(t.Context(), compiled(t, rule))
	if err != nil {
		t.Fatal(err)
	}
	return program, func() int {
		defer func() { evaluations = 0 }()
		return evaluations
	}
}

// TestEvaluatesEachProjectionOnce changes a request in parts that a rule reads, and in parts that
// it does not read.
func TestEvaluatesEachProjectionOnce(t *testing.T) {
	labels := &metav1.LabelSelector{MatchLabels: map[string]string{"ready": "true"}}
	keys := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "zone", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"a"}},
	}}
	check := func(change func(*appsv1alpha1.TransitionRule)) appsv1alpha1.TransitionRule {
		rule := labelCheck("mine")
		rule.LabelCheck.Requires = labels
		change(&rule)
		return rule
	}
	plain := check(func(*appsv1alpha1.TransitionRule) {})
	filtered := check(func(rule *appsv1alpha1.TransitionRule) {
		rule.Filter = &appsv1alpha1.TransitionRuleFilter{LabelSelector: keys}
	})
	typed := check(func(rule *appsv1alpha1.TransitionRule) { rule.Conditions = []string{"update"} })
	for name, tc := range map[string]struct {
		rule      appsv1alpha1.TransitionRule
		change    func(*rule.Request)
		evaluated bool
	}{
		"another pod":                     {rule: plain, change: func(r *rule.Request) { r.Pod.Name, r.Pod.UID = "other", "other" }},
		"a label that it requires":        {rule: plain, change: func(r *rule.Request) { r.Pod.Labels["ready"] = "no" }, evaluated: true},
		"that label taken off":            {rule: plain, change: func(r *rule.Request) { delete(r.Pod.Labels, "ready") }, evaluated: true},
		"that label empty":                {rule: plain, change: func(r *rule.Request) { r.Pod.Labels["ready"] = "" }, evaluated: true},
		"another label":                   {rule: plain, change: func(r *rule.Request) { r.Pod.Labels["zone"] = "b" }},
		"a label of its filter":           {rule: filtered, change: func(r *rule.Request) { r.Pod.Labels["zone"] = "b" }, evaluated: true},
		"the pod skips it":                {rule: plain, change: func(r *rule.Request) { r.Pod.SkipRules = []string{"mine"} }, evaluated: true},
		"the pod skips another rule":      {rule: plain, change: func(r *rule.Request) { r.Pod.SkipRules = []string{"other"} }},
		"the operation type":              {rule: plain, change: func(r *rule.Request) { r.Type = "delete" }},
		"the operation type it names":     {rule: typed, change: func(r *rule.Request) { r.Type = "delete" }, evaluated: true},
		"whether the pod is available":    {rule: plain, change: func(r *rule.Request) { r.Pod.Available = false }},
		"the state of its task":           {rule: approval("Fail"), change: func(r *rule.Request) { r.Task.State = rule.TaskApproved }, evaluated: true},
		"that a task failed":              {rule: approval("Fail"), change: func(r *rule.Request) { r.Task.State = rule.TaskFailed }, evaluated: true},
		"the class of a failure":          {rule: approval("Fail"), change: func(r *rule.Request) { r.Task.Class = "Rejected" }, evaluated: true},
		"that a retry is due":             {rule: approval("Fail"), change: func(r *rule.Request) { r.Task.RetryDue = true }, evaluated: true},
		"when a retry is due":             {rule: approval("Fail"), change: func(r *rule.Request) { r.Task.RetryAt = time.Unix(1, 0) }},
		"the message of the service":      {rule: approval("Fail"), change: func(r *rule.Request) { r.Task.Message = "not now" }},
		"a task that is not of its kind":  {rule: plain, change: func(r *rule.Request) { r.Task.State = rule.TaskApproved }},
		"the same for an availablePolicy": {rule: budget("25%"), change: func(r *rule.Request) { r.Pod.Available = false }, evaluated: true},
	} {
		t.Run(name, func(t *testing.T) {
			program, evaluations := counted(t, tc.rule)
			verdictOf := func(request rule.Request) rule.Verdict {
				result, err := program.Evaluate(t.Context(), program.Stage(), rule.Environment{}, []rule.Request{request})
				if err != nil {
					t.Fatal(err)
				}
				return result.Verdicts[request.Key()]
			}
			verdictOf(request(0, true))
			if evaluations() != 1 {
				t.Fatal("the first request was not evaluated")
			}
			changed := request(0, true)
			tc.change(&changed)
			got := verdictOf(changed)
			if evaluated := evaluations() > 0; evaluated != tc.evaluated {
				t.Errorf("evaluated: %v, want %v", evaluated, tc.evaluated)
			}
			if diff := cmp.Diff(reference(tc.rule, rule.Counts{}, []rule.Request{changed}).Verdicts[changed.Key()], got); diff != "" {
				t.Errorf("verdict (-reference +got):\n%s", diff)
			}
		})
	}
}

func TestCapacityIsEvaluatedOncePerCounts(t *testing.T) {
	program, evaluations := counted(t, budget("25%"))
	for i, available := range []int{9, 9, 8, 8, 9} {
		counts := rule.Counts{Selected: 10, Desired: 10, Available: available}
		result, err := program.Evaluate(t.Context(), program.Stage(), rule.Environment{Counts: counts}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(reference(budget("25%"), counts, nil), result); diff != "" {
			t.Errorf("result %d (-reference +got):\n%s", i, diff)
		}
		if got, want := evaluations(), []int{1, 0, 1, 0, 0}[i]; got != want {
			t.Errorf("call %d: Rego was evaluated %d times, want %d", i, got, want)
		}
	}
}

// TestWouldFollowsTheCounts checks that verdicts which depend on the slots are the verdicts for the
// present counts.
func TestWouldFollowsTheCounts(t *testing.T) {
	entry := budget("25%")
	entry.Enforcement = appsv1alpha1.EnforcementWarn
	program, _ := counted(t, entry)
	for _, available := range []int{10, 7, 10, 6} {
		counts := rule.Counts{Selected: 10, Desired: 10, Available: available}
		requests := []rule.Request{request(0, true), request(1, true)}
		result, err := program.Evaluate(t.Context(), program.Stage(), rule.Environment{Counts: counts}, requests)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(reference(entry, counts, requests), result); diff != "" {
			t.Errorf("with %d available (-reference +got):\n%s", available, diff)
		}
	}
}

// TestVerdictCacheIsBounded checks that the cache stays small and correct for any number of
// projections.
func TestVerdictCacheIsBounded(t *testing.T) {
	program, evaluations := counted(t, labelCheck("mine"))
	for round := range 3 {
		for i := range 300 {
			one := request(i, true)
			one.Pod.Labels["ready"] = fmt.Sprintf("no-%d", i)
			result, err := program.Evaluate(t.Context(), program.Stage(), rule.Environment{}, []rule.Request{one})
			if err != nil {
				t.Fatal(err)
			}
			if got := result.Verdicts[one.Key()].Code; got != rule.CodeLabelMismatch {
				t.Fatalf("pod %d got %q", i, got)
			}
		}
		if count := evaluations(); count < 200 {
			t.Errorf("round %d: Rego was evaluated %d times for 300 projections: too many are cached", round, count)
		}
	}
}
