package podtransitionrule

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/opa"
	"github.com/podops-dev/podops/pkg/rule"
)

// TestCountersShowToWhichRequestsARuleApplied: a typing error in conditions must not look like a rule that was
// evaluated and never withheld a request.
func TestCountersShowToWhichRequestsARuleApplied(t *testing.T) {
	entry := labelled("approved", "approved")
	entry.Conditions = []string{"delete"}
	c := newCounters(entry, 1)
	waiting := func(name, operationType string, skipped ...string) finding {
		return finding{request: &rule.Request{
			Pod: &rule.PodFact{Name: name, Namespace: "shop", SkipRules: skipped}, ID: name, Type: operationType, Generation: "1",
		}}
	}
	expect := func(what string, wantAsked, wantNotApplicable int64) {
		t.Helper()
		if diff := cmp.Diff([]int64{wantAsked, wantNotApplicable}, []int64{c.status.Asked, c.status.NotApplicable}); diff != "" {
			t.Errorf("%s: asked and not applicable (-want +got):\n%s", what, diff)
		}
	}
	for range 2 { // a request counts once
		c.count([]finding{waiting("a", "delete"), waiting("b", "update"), waiting("c", "delete", "approved")}, time.Unix(0, 0))
		expect("three requests", 1, 2)
	}
	asked, _, _ := c.count([]finding{waiting("a", "delete"), waiting("c", "delete")}, time.Unix(0, 0))
	expect("a pod that skips the rule no more", 2, 2)
	if asked != 1 {
		t.Errorf("%d are new to the rule", asked)
	}
}

// TestSelecting: a selector with a typing error is no different from others but for the pods.
func TestSelecting(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.rules("web", labelled("approved", "approved"))
	selecting := func() string {
		t.Helper()
		for _, condition := range s.object("web").Status.Conditions {
			if condition.Type == appsv1alpha1.ConditionSelecting {
				return string(condition.Status) + " " + condition.Reason
			}
		}
		return ""
	}
	s.step(time.Second)
	if got := selecting(); got != "False NoPodSelected" {
		t.Errorf("without pods: %s", got)
	}
	s.put(web(0).Obj())
	s.step(2 * statusInterval)
	if got := selecting(); got != "True PodsSelected" {
		t.Errorf("with a pod: %s", got)
	}
}
