package evaluation

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
)

// TestCountersShowToWhichRequestsARuleApplied matters because a typing error in conditions must not look like a rule that was
// evaluated and never withheld a request.
func TestCountersShowToWhichRequestsARuleApplied(t *testing.T) {
	entry := appsv1alpha1.TransitionRule{Name: "approved", Conditions: []string{"delete"}, LabelCheck: &appsv1alpha1.LabelCheck{}}
	c := newCounters(entry, 1)
	waiting := func(name, operationType string, skipped ...string) finding {
		return finding{request: &rule.Request{
			Pod: &rule.PodFact{Name: name, Namespace: "shop", SkipRules: skipped}, ID: name, Type: operationType, Attempt: "1",
		}}
	}
	expect := func(what string, wantEvaluated, wantNotApplicable int64) {
		t.Helper()
		if diff := cmp.Diff([]int64{wantEvaluated, wantNotApplicable}, []int64{c.status.Evaluated, c.status.NotApplicable}); diff != "" {
			t.Errorf("%s: evaluated and not applicable (-want +got):\n%s", what, diff)
		}
	}
	known := map[string]*counted{"a": {}, "b": {}, "c": {}}
	count := func(findings ...finding) (round Count) {
		for _, found := range findings {
			c.count(found, known[found.request.ID], &round, time.Unix(0, 0))
		}
		return round
	}
	for range 2 { // a request counts once
		count(waiting("a", "delete"), waiting("b", "update"), waiting("c", "delete", "approved"))
		expect("three requests", 1, 2)
	}
	round := count(waiting("a", "delete"), waiting("c", "delete"))
	expect("a pod that skips the rule no more", 2, 2)
	if round.Evaluated != 1 {
		t.Errorf("%d are new to the rule", round.Evaluated)
	}
}
