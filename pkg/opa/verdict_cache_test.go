package opa_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/opa"
	"github.com/podops-dev/podops/pkg/rule"
)

// counted is a program, and how often Rego was asked.
func counted(t *testing.T, rule appsv1alpha1.TransitionRule) (*opa.Program, func() int) {
	t.Helper()
	evaluations := 0
	e := newEngine(t, opa.Options{Observe: func(opa.Observation) { evaluations++ }})
	program, err := e.Prepare(t.Context(), compiled(t, rule))
	if err != nil {
		t.Fatal(err)
	}
	return program, func() int {
		defer func() { evaluations = 0 }()
		return evaluations
	}
}

// What a rule looks at makes another question; what it does not look at makes none.
func TestAsksAboutEachLookOnce(t *testing.T) {
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
		rule   appsv1alpha1.TransitionRule
		change func(*rule.Request)
		asked  bool
	}{
		"another pod":                     {rule: plain, change: func(r *rule.Request) { r.Pod.Name, r.Pod.UID = "other", "other" }},
		"a label that it requires":        {rule: plain, change: func(r *rule.Request) { r.Pod.Labels["ready"] = "no" }, asked: true},
		"that label taken off":            {rule: plain, change: func(r *rule.Request) { delete(r.Pod.Labels, "ready") }, asked: true},
		"that label empty":                {rule: plain, change: func(r *rule.Request) { r.Pod.Labels["ready"] = "" }, asked: true},
		"another label":                   {rule: plain, change: func(r *rule.Request) { r.Pod.Labels["zone"] = "b" }},
		"a label of its filter":           {rule: filtered, change: func(r *rule.Request) { r.Pod.Labels["zone"] = "b" }, asked: true},
		"the pod skips it":                {rule: plain, change: func(r *rule.Request) { r.Pod.SkipRules = []string{"mine"} }, asked: true},
		"the pod skips another one":       {rule: plain, change: func(r *rule.Request) { r.Pod.SkipRules = []string{"other"} }},
		"the operation type":              {rule: plain, change: func(r *rule.Request) { r.Type = "delete" }},
		"the operation type it names":     {rule: typed, change: func(r *rule.Request) { r.Type = "delete" }, asked: true},
		"whether the pod is available":    {rule: plain, change: func(r *rule.Request) { r.Pod.Available = false }},
		"the state of its task":           {rule: approval("Fail"), change: func(r *rule.Request) { r.Task.State = rule.TaskApproved }, asked: true},
		"that a task failed":              {rule: approval("Fail"), change: func(r *rule.Request) { r.Task.State = rule.TaskFailed }, asked: true},
		"the class of a failure":          {rule: approval("Fail"), change: func(r *rule.Request) { r.Task.Class = "Rejected" }, asked: true},
		"that it is time to ask again":    {rule: approval("Fail"), change: func(r *rule.Request) { r.Task.RetryDue = true }, asked: true},
		"when it is time to ask again":    {rule: approval("Fail"), change: func(r *rule.Request) { r.Task.RetryAt = time.Unix(1, 0) }},
		"what the service says":           {rule: approval("Fail"), change: func(r *rule.Request) { r.Task.Message = "not now" }},
		"a task that is not of its kind":  {rule: plain, change: func(r *rule.Request) { r.Task.State = rule.TaskApproved }},
		"the same for an availablePolicy": {rule: budget("25%"), change: func(r *rule.Request) { r.Pod.Available = false }, asked: true},
	} {
		t.Run(name, func(t *testing.T) {
			program, evaluations := counted(t, tc.rule)
			ask := func(request rule.Request) rule.Verdict {
				result, err := program.Evaluate(t.Context(), program.Stage(), rule.Environment{}, []rule.Request{request})
				if err != nil {
					t.Fatal(err)
				}
				return result.Verdicts[request.Key()]
			}
			ask(request(0, true))
			if evaluations() != 1 {
				t.Fatal("the first question was not asked")
			}
			changed := request(0, true)
			tc.change(&changed)
			got := ask(changed)
			if asked := evaluations() > 0; asked != tc.asked {
				t.Errorf("asked: %v, want %v", asked, tc.asked)
			}
			if diff := cmp.Diff(reference(tc.rule, rule.Counts{}, []rule.Request{changed}).Verdicts[changed.Key()], got); diff != "" {
				t.Errorf("verdict (-reference +got):\n%s", diff)
			}
		})
	}
}

func TestRoomIsAskedForOncePerCounts(t *testing.T) {
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
			t.Errorf("question %d: Rego was asked %d times, want %d", i, got, want)
		}
	}
}

// Verdicts that say whether there was room are those of the present counts.
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

// However many looks there are, what is remembered stays small and right.
func TestSightsAreBounded(t *testing.T) {
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
		if asked := evaluations(); asked < 200 {
			t.Errorf("round %d: Rego was asked %d times about 300 looks: too many are remembered", round, asked)
		}
	}
}
