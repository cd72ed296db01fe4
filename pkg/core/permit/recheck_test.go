package permit_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/permit"
	"github.com/podops-dev/podops/pkg/core/rule"
)

// sequentialBudget returns the budget of an object whose rule "other" depends on other pods, and
// that has no slots.
func sequentialBudget(object string, live ...string) permit.Budget {
	b := budget(object, 0, live...)
	b.Slots, b.Sequential = nil, true
	return b
}

// rechecked adds the rule "other" of objects with a sequential budget to a candidate.
func rechecked(c permit.Candidate, objects ...string) permit.Candidate {
	for _, object := range objects {
		c = selectedBy(c, object)
		c.Rechecked = append(c.Rechecked, ruleID(object, "other"))
	}
	return c
}

func inPostCheck(c permit.Candidate) permit.Candidate {
	c.Request.Stage = appsv1alpha1.StagePostCheck
	return c
}

// shardOf returns the first letter of a pod's name.
func shardOf(uid types.UID) byte { return uid[0] }

// onePerShard lets a pod pass while no other pod of its shard is committed.
func onePerShard(_ rule.RuleID, request rule.Request, committed permit.Committed) (rule.Verdict, bool) {
	for uid := range committed.Pods {
		if uid != request.Pod.UID && shardOf(uid) == shardOf(request.Pod.UID) {
			return rule.Verdict{Code: rule.CodeDenied, Message: "another pod of the shard is committed"}, true
		}
	}
	return rule.Verdict{Outcome: rule.Passed}, true
}

func passes(rule.RuleID, rule.Request, permit.Committed) (rule.Verdict, bool) {
	return rule.Verdict{Outcome: rule.Passed}, true
}

func TestNextRechecksDependentRules(t *testing.T) {
	for name, tc := range map[string]struct {
		budgets    []permit.Budget
		candidates []permit.Candidate
		recheck    permit.Recheck
		want       outcome
	}{
		"of two pods of a shard the pod that waits longer is permitted": {
			budgets: []permit.Budget{sequentialBudget("db")},
			candidates: []permit.Candidate{
				rechecked(waiting("a2", 0), "db"), rechecked(waiting("a1", 1), "db"), rechecked(waiting("b1", 2), "db"),
			},
			want: outcome{
				Granted: []string{"a2/a", "b1/a"}, Denied: []string{"a1/a db/other Denied"},
				Reserve: map[string][]string{"db": {"a2", "b1"}}, Records: map[string][]string{"a2": {"db"}, "b1": {"db"}},
			},
		},
		"a live reservation counts from the beginning, even if its pod does not wait": {
			budgets:    []permit.Budget{sequentialBudget("db", "a1")},
			candidates: []permit.Candidate{rechecked(waiting("a2", 0), "db")},
			want:       outcome{Denied: []string{"a2/a db/other Denied"}, Invalidate: []types.UID{"a1"}},
		},
		"a live reservation of another object counts too": {
			budgets:    []permit.Budget{sequentialBudget("db"), budget("web", 1, "a1")},
			candidates: []permit.Candidate{rechecked(waiting("a2", 0), "db")},
			want:       outcome{Denied: []string{"a2/a db/other Denied"}, Invalidate: []types.UID{"a1"}},
		},
		"a reserved pod is rechecked, and does not count against itself": {
			budgets:    []permit.Budget{sequentialBudget("db", "a1")},
			candidates: []permit.Candidate{rechecked(waiting("a1", 0), "db")},
			want:       outcome{Granted: []string{"a1/a"}, Records: map[string][]string{"a1": {"db"}}},
		},
		"a pod that is unavailable takes no slot, is rechecked and recorded": {
			budgets: []permit.Budget{sequentialBudget("db"), budget("web", 0)},
			candidates: []permit.Candidate{
				under(rechecked(unavailable(waiting("a1", 0)), "db"), "web/max"), rechecked(unavailable(waiting("a2", 1)), "db"),
			},
			want: outcome{
				Granted: []string{"a1/a"}, Denied: []string{"a2/a db/other Denied"},
				Reserve: map[string][]string{"db": {"a1"}}, Records: map[string][]string{"a1": {"db"}},
			},
		},
		"an unavailable pod in a record leaves the slots to others": {
			budgets: []permit.Budget{func() permit.Budget { b := budget("web", 1); b.Sequential = true; return b }()},
			candidates: []permit.Candidate{
				rechecked(under(unavailable(waiting("a1", 0)), "web/max"), "web"), rechecked(under(waiting("b1", 1), "web/max"), "web"),
			},
			want: outcome{
				Granted: []string{"a1/a", "b1/a"}, Reserve: map[string][]string{"web": {"a1", "b1"}},
				Records: map[string][]string{"a1": {"web"}, "b1": {"web"}},
			},
		},
		"a pod that a recheck denies leaves the slot to the next": {
			budgets: []permit.Budget{sequentialBudget("db", "a1"), budget("web", 1)},
			candidates: []permit.Candidate{
				rechecked(waiting("a1", 9), "db"), under(rechecked(waiting("a2", 0), "db"), "web/max"), under(rechecked(waiting("b1", 1), "db"), "web/max"),
			},
			want: outcome{
				Granted: []string{"a1/a", "b1/a"}, Denied: []string{"a2/a db/other Denied"},
				Reserve: map[string][]string{"db": {"a1", "b1"}, "web": {"b1"}},
				Records: map[string][]string{"a1": {"db"}, "b1": {"db", "web"}},
			},
		},
		"a pod without a slot holds back no other pod": {
			budgets:    []permit.Budget{sequentialBudget("db"), budget("web", 0)},
			candidates: []permit.Candidate{under(rechecked(waiting("a1", 0), "db"), "web/max"), rechecked(waiting("a2", 1), "db")},
			want: outcome{
				Granted: []string{"a2/a"}, Denied: []string{"a1/a web/max NoRoom"},
				Reserve: map[string][]string{"db": {"a2"}}, Records: map[string][]string{"a2": {"db"}},
			},
		},
		"a PostCheck is rechecked, and takes no slot": {
			budgets:    []permit.Budget{sequentialBudget("db", "a3")},
			candidates: []permit.Candidate{rechecked(inPostCheck(waiting("a1", 0)), "db"), rechecked(inPostCheck(waiting("b1", 1)), "db"), rechecked(waiting("b2", 2), "db")},
			want: outcome{
				Granted: []string{"b1/a", "b2/a"}, Denied: []string{"a1/a db/other Denied"},
				Reserve: map[string][]string{"db": {"a3", "b2"}}, Records: map[string][]string{"b2": {"db"}}, Invalidate: []types.UID{"a3"},
			},
		},
		"each id of a pod is rechecked": {
			budgets:    []permit.Budget{sequentialBudget("db")},
			candidates: []permit.Candidate{rechecked(waitingAs("a1", "x", 0), "db"), rechecked(waitingAs("a1", "y", 1), "db")},
			recheck: func(_ rule.RuleID, request rule.Request, _ permit.Committed) (rule.Verdict, bool) {
				if request.ID == "y" {
					return rule.Verdict{Code: rule.CodeNotAllowed}, true
				}
				return rule.Verdict{Outcome: rule.Passed}, true
			},
			want: outcome{
				Granted: []string{"a1/x"}, Denied: []string{"a1/y db/other NotAllowed"},
				Reserve: map[string][]string{"db": {"a1"}}, Records: map[string][]string{"a1": {"db"}},
			},
		},
		"the first rule that denies is reported": {
			budgets:    []permit.Budget{sequentialBudget("cache"), sequentialBudget("db")},
			candidates: []permit.Candidate{rechecked(waiting("a1", 0), "cache", "db")},
			recheck: func(id rule.RuleID, _ rule.Request, _ permit.Committed) (rule.Verdict, bool) {
				if id.Ruleset.Name == "db" {
					return rule.Verdict{Code: rule.CodeDenied}, true
				}
				return rule.Verdict{Outcome: rule.Passed}, true
			},
			want: outcome{Denied: []string{"a1/a db/other Denied"}},
		},
		"an outcome other than Passed denies": {
			budgets:    []permit.Budget{sequentialBudget("db")},
			candidates: []permit.Candidate{rechecked(waiting("a1", 0), "db")},
			recheck: func(rule.RuleID, rule.Request, permit.Committed) (rule.Verdict, bool) {
				return rule.Verdict{Outcome: rule.NeedsSlot}, true
			},
			want: outcome{Denied: []string{"a1/a db/other "}},
		},
		"a pod that is not reached waits, and keeps its reservation": {
			budgets:    []permit.Budget{sequentialBudget("db", "a1")},
			candidates: []permit.Candidate{rechecked(waiting("a1", 0), "db"), rechecked(waiting("b1", 0), "db"), waiting("free", 0)},
			recheck: func(rule.RuleID, rule.Request, permit.Committed) (rule.Verdict, bool) {
				return rule.Verdict{Outcome: rule.Passed}, false
			},
			want: outcome{Granted: []string{"free/a"}, Denied: []string{"a1/a db/other NotReached", "b1/a db/other NotReached"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			recheck := tc.recheck
			if recheck == nil {
				recheck = onePerShard
			}
			if diff := cmp.Diff(tc.want, outcomeOf(permit.Next(tc.budgets, tc.candidates, recheck, epoch))); diff != "" {
				t.Errorf("plan differs (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNextWithoutARecheck shows that Next denies the requests that need a recheck, and no others.
func TestNextWithoutARecheck(t *testing.T) {
	candidates := []permit.Candidate{rechecked(waiting("a1", 0), "db"), selectedBy(waiting("a2", 1), "db")}
	plan := permit.Next([]permit.Budget{sequentialBudget("db")}, candidates, nil, epoch)
	want := outcome{
		Granted: []string{"a2/a"}, Denied: []string{"a1/a db/other NotReached"},
		Reserve: map[string][]string{"db": {"a2"}}, Records: map[string][]string{"a2": {"db"}},
	}
	if diff := cmp.Diff(want, outcomeOf(plan)); diff != "" {
		t.Errorf("plan differs (-want +got):\n%s", diff)
	}
}

// TestNextRechecksOnlyRequestsWithASlot saves time: a request without a slot is not evaluated.
func TestNextRechecksOnlyRequestsWithASlot(t *testing.T) {
	var evaluated []string
	recheck := func(_ rule.RuleID, request rule.Request, _ permit.Committed) (rule.Verdict, bool) {
		evaluated = append(evaluated, request.Pod.Name)
		return rule.Verdict{Outcome: rule.Passed}, true
	}
	permit.Next([]permit.Budget{sequentialBudget("db"), budget("web", 1)}, []permit.Candidate{
		under(rechecked(waiting("a1", 0), "db"), "web/max"), under(rechecked(waiting("b1", 1), "db"), "web/max"),
		rechecked(unavailable(waiting("c1", 2)), "db"),
	}, recheck, epoch)
	if diff := cmp.Diff([]string{"a1", "c1"}, evaluated); diff != "" {
		t.Errorf("rechecked pods (-want +got):\n%s", diff)
	}
}

// TestCommitted shows the pods that each recheck sees during a round.
func TestCommitted(t *testing.T) {
	var reserved []int
	var pods []int
	recheck := func(_ rule.RuleID, _ rule.Request, committed permit.Committed) (rule.Verdict, bool) {
		reserved, pods = append(reserved, committed.Reserved), append(pods, len(committed.Pods))
		return rule.Verdict{Outcome: rule.Passed}, true
	}
	permit.Next([]permit.Budget{sequentialBudget("db", "l")}, []permit.Candidate{
		rechecked(waiting("l", 9), "db"), rechecked(waiting("a", 0), "db"), rechecked(waitingAs("a", "second", 1), "db"),
		rechecked(unavailable(waiting("b", 2)), "db"), rechecked(unavailable(waitingAs("b", "second", 3)), "db"), rechecked(waiting("c", 4), "db"),
	}, recheck, epoch)
	if diff := cmp.Diff([]int{-1, 0, 0, 1, 1, 1}, reserved); diff != "" {
		t.Errorf("newly reserved: the pod itself and unavailable pods are left out (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int{1, 1, 2, 2, 3, 3}, pods); diff != "" {
		t.Errorf("committed pods (-want +got):\n%s", diff)
	}
}
