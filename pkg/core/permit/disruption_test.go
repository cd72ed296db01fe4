package permit_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/permit"
	"github.com/podops-dev/podops/pkg/core/rule"
)

var pdb = rule.DisruptionBudgetID(namespace, "web")

// disruptions is the budget of a PodDisruptionBudget.
func disruptions(slots int, live ...string) permit.Budget {
	b := permit.Budget{Ruleset: pdb.String(), Disruption: true, Slots: map[string]int{"web": slots}, Live: map[types.UID]appsv1alpha1.ReservedPod{}}
	for _, pod := range live {
		b.Live[types.UID(pod)] = reserved(pod)
	}
	return b
}

// disrupted puts a candidate under the PodDisruptionBudget.
func disrupted(c permit.Candidate, ready bool) permit.Candidate {
	fact := *c.Request.Pod
	fact.Ready = ready
	c.Request.Pod = &fact
	c.Needs, c.Budgets = append(c.Needs, pdb), append(c.Budgets, pdb.String())
	return c
}

// exempt is a candidate that the PodDisruptionBudget selects and does not apply to.
func exempt(c permit.Candidate) permit.Candidate {
	c = disrupted(c, true)
	c.Needs = nil
	return c
}

func TestPodDisruptionBudgetsGiveSlotsToReadyPods(t *testing.T) {
	inherited := disruptions(0, "b")
	inherited.Inherited = true
	for name, c := range map[string]struct {
		budget     permit.Budget
		candidates []permit.Candidate
		want       []string
		invalidate []types.UID

		// record are the pods of the record to write; nil: it is not written. needs are the pods that it must
		// contain before they are stamped.
		record, needs []string
	}{
		"as many as there are": {
			budget: disruptions(1), candidates: []permit.Candidate{disrupted(waiting("a", 1), true), disrupted(waiting("b", 2), true)},
			want: []string{"a"}, record: []string{"a"}, needs: []string{"a"},
		},
		"an unready pod takes none":       {budget: disruptions(0), candidates: []permit.Candidate{disrupted(waiting("a", 1), false)}, want: []string{"a"}},
		"a Ready pod that is unavailable": {budget: disruptions(0), candidates: []permit.Candidate{disrupted(unavailable(waiting("a", 1)), true)}},
		"a pod that holds one": {
			budget: disruptions(0, "b"), candidates: []permit.Candidate{disrupted(waiting("a", 1), true), disrupted(waiting("b", 2), true)},
			want: []string{"b"}, needs: []string{"b"},
		},
		"none at all below zero": {
			budget: disruptions(-1, "b"), candidates: []permit.Candidate{disrupted(waiting("b", 2), true)}, invalidate: []types.UID{"b"},
		},
		"one more than a pod holds": {
			budget: disruptions(1, "b"), candidates: []permit.Candidate{disrupted(waiting("a", 1), true), disrupted(waiting("b", 2), true)},
			want: []string{"b", "a"}, record: []string{"a", "b"}, needs: []string{"a", "b"},
		},
		"a record that the PodDisruptionBudget has lost": {
			budget: inherited, candidates: []permit.Candidate{disrupted(waiting("b", 2), true)},
			want: []string{"b"}, record: []string{"b"}, needs: []string{"b"},
		},
		"an exempt pod takes one from the others": {
			budget: disruptions(1), candidates: []permit.Candidate{exempt(waiting("a", 1)), disrupted(waiting("b", 2), true)},
			want: []string{"a"}, record: []string{"a"}, needs: []string{"a"},
		},
		"two requests of a pod share one": {
			budget: disruptions(1), candidates: []permit.Candidate{
				disrupted(waitingAs("a", "x", 1), true), disrupted(waitingAs("a", "y", 1), true), disrupted(waiting("b", 2), true),
			},
			want: []string{"a", "a"}, record: []string{"a"}, needs: []string{"a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			plan := permit.Next([]permit.Budget{c.budget}, c.candidates, nil, epoch)
			var got []string
			for _, request := range plan.Grants {
				got = append(got, request.Pod.Name)
			}
			if diff := cmp.Diff(c.want, got) + cmp.Diff(c.invalidate, plan.Invalidate); diff != "" {
				t.Errorf("permitted, invalidated (-want +got):\n%s", diff)
			}
			var record, needs []string
			for _, reserved := range plan.Reserve[pdb.String()] {
				record = append(record, reserved.Name)
			}
			for uid := range plan.NeedsRecords {
				needs = append(needs, string(uid))
			}
			slices.Sort(needs)
			if diff := cmp.Diff(c.record, record) + cmp.Diff(c.needs, needs); diff != "" {
				t.Errorf("recorded, and must be recorded (-want +got):\n%s", diff)
			}
			for _, denial := range plan.Denied {
				if denial.Rule != pdb || denial.Verdict.Code != rule.CodeNoRoom {
					t.Errorf("%s is denied by %s (%s)", denial.Request.Pod.Name, denial.Rule, denial.Verdict.Code)
				}
			}
		})
	}
}

// waived is a candidate that passes the PodDisruptionBudget even without a slot.
func waived(c permit.Candidate) permit.Candidate {
	c = disrupted(c, true)
	c.Waived = c.Needs
	return c
}

func TestAWaivedRuleDeniesNothing(t *testing.T) {
	candidates := []permit.Candidate{waived(waiting("a", 1)), waived(waiting("b", 2)), disrupted(waiting("c", 3), true)}
	plan := permit.Next([]permit.Budget{disruptions(1)}, candidates, nil, epoch)
	if len(plan.Grants) != 2 || len(plan.Denied) != 1 || plan.Denied[0].Request.Pod.Name != "c" {
		t.Errorf("granted %v, denied %v", plan.Grants, plan.Denied)
	}
	if len(plan.Waived) != 1 || plan.Waived[0].Request.Pod.Name != "b" || plan.Waived[0].Rule != pdb {
		t.Errorf("waived %v: a has a slot, and b has none", plan.Waived)
	}
}

// TestARefusedRequestWaivesNothing matters because the denial of a waived rule is of no interest then.
func TestARefusedRequestWaivesNothing(t *testing.T) {
	c := waived(waiting("a", 1))
	c = under(c, "x/full")
	plan := permit.Next([]permit.Budget{disruptions(0), {Ruleset: "x", Slots: map[string]int{"full": 0}}}, []permit.Candidate{c}, nil, epoch)
	if len(plan.Grants) > 0 || len(plan.Waived) > 0 || len(plan.Denied) != 1 {
		t.Errorf("granted %v, waived %v, denied %v", plan.Grants, plan.Waived, plan.Denied)
	}
}
