package opa_test

import (
	"testing"

	"pgregory.net/rapid"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
)

// TestApprovalRulesCountAsTheirMessages draws approvals, and compares the verdict of the rule with the numbers that messages and
// kubectl podops approvals print.
func TestApprovalRulesCountAsTheirMessages(t *testing.T) {
	users := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"alice", "bob", "carol", "dan"}), 0, 4, rapid.ID[string])
	rapid.Check(t, func(rt *rapid.T) {
		spec := appsv1alpha1.ApprovalRule{
			MinApprovals: rapid.Int32Range(1, 4).Draw(rt, "minApprovals"), AllowAuthor: rapid.Bool().Draw(rt, "allowAuthor"),
		}
		facts := rule.Approval{
			Workload: "Deployment web", Revision: rapid.SampledFrom([]string{"", "b"}).Draw(rt, "revision"), Current: rapid.Bool().Draw(rt, "current"),
			Author:     rapid.SampledFrom([]string{"", "carol", "eve"}).Draw(rt, "author"),
			ApprovedBy: users.Draw(rt, "approvedBy"), DeniedBy: users.Draw(rt, "deniedBy"),
		}
		program := prepared(t, appsv1alpha1.TransitionRule{
			Name: "approval", Stage: appsv1alpha1.StagePreCheck, Enforcement: appsv1alpha1.EnforcementEnforce, Approval: &spec,
		})
		pending := request(0, true)
		pending.Approval = &facts
		result, err := program.Evaluate(t.Context(), program.Stage(), rule.Environment{}, []rule.Request{pending})
		if err != nil {
			rt.Fatal(err)
		}
		counted, needed := rule.CountApprovals(spec, facts)
		want := rule.Verdict{Code: rule.CodeNotApproved}
		switch {
		case facts.Current && facts.Revision != "", !facts.Current && facts.Revision != "" && len(facts.DeniedBy) == 0 && len(counted) >= needed:
			want = rule.Verdict{Outcome: rule.Passed}
		case !facts.Current && len(facts.DeniedBy) > 0:
			want = rule.Verdict{Code: rule.CodeRevisionDenied}
		}
		if got := result.Verdicts[pending.Key()]; got != want {
			rt.Fatalf("%+v under %+v: want %+v, got %+v", facts, spec, want, got)
		}
	})
}

func TestApprovalRulesWithholdWithoutFacts(t *testing.T) {
	program := prepared(t, appsv1alpha1.TransitionRule{
		Name: "approval", Stage: appsv1alpha1.StagePreCheck, Enforcement: appsv1alpha1.EnforcementEnforce, Approval: &appsv1alpha1.ApprovalRule{MinApprovals: 1},
	})
	pending := request(0, true)
	result, err := program.Evaluate(t.Context(), program.Stage(), rule.Environment{}, []rule.Request{pending})
	if err != nil {
		t.Fatal(err)
	}
	if got := result.Verdicts[pending.Key()]; got != (rule.Verdict{Code: rule.CodeUndefined}) {
		t.Errorf("got %+v", got)
	}
}
