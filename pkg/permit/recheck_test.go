package permit_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/permit"
	"github.com/podops-dev/podops/pkg/rule"
)

// judgedBudget is one of an object whose rule "other" judges pods by other pods, and that
// has no slots to give.
func judgedBudget(object string, live ...string) permit.Budget {
	b := budget(object, 0, live...)
	b.Slots, b.Sequential = nil, true
	return b
}

// judgedBy puts a candidate before the rule "other" of objects with a judged budget.
func judgedBy(c permit.Candidate, objects ...string) permit.Candidate {
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

// shardOf is the first letter of a pod's name.
func shardOf(uid types.UID) byte { return uid[0] }

// onePerShard lets a pod pass while no other one of its shard is taken.
func onePerShard(_ rule.RuleID, request rule.Request, taken permit.Committed) (rule.Verdict, bool) {
	for uid := range taken.Pods {
		if uid != request.Pod.UID && shardOf(uid) == shardOf(request.Pod.UID) {
			return rule.Verdict{Code: rule.CodeDenied, Message: "another pod of the shard is taken"}, true
		}
	}
	return rule.Verdict{Outcome: rule.Passed}, true
}

func passes(rule.RuleID, rule.Request, permit.Committed) (rule.Verdict, bool) {
	return rule.Verdict{Outcome: rule.Passed}, true
}

func TestNextAsksTheJudges(t *testing.T) {
	for name, tc := range map[string]struct {
		budgets    []permit.Budget
		candidates []permit.Candidate
		judge      permit.Recheck
		want       outcome
	}{
		"of two pods of a shard the one that waits longer goes": {
			budgets: []permit.Budget{judgedBudget("db")},
			candidates: []permit.Candidate{
				judgedBy(asks("a2", 0), "db"), judgedBy(asks("a1", 1), "db"), judgedBy(asks("b1", 2), "db"),
			},
			want: outcome{
				Granted: []string{"a2/a", "b1/a"}, Refused: []string{"a1/a db/other Denied"},
				Reserve: map[string][]string{"db": {"a2", "b1"}}, Records: map[string][]string{"a2": {"db"}, "b1": {"db"}},
			},
		},
		"a live reservation counts from the beginning, even if its pod does not wait": {
			budgets:    []permit.Budget{judgedBudget("db", "a1")},
			candidates: []permit.Candidate{judgedBy(asks("a2", 0), "db")},
			want:       outcome{Refused: []string{"a2/a db/other Denied"}, Invalidate: []types.UID{"a1"}},
		},
		"a live reservation of another object counts too": {
			budgets:    []permit.Budget{judgedBudget("db"), budget("web", 1, "a1")},
			candidates: []permit.Candidate{judgedBy(asks("a2", 0), "db")},
			want:       outcome{Refused: []string{"a2/a db/other Denied"}, Invalidate: []types.UID{"a1"}},
		},
		"a reserved pod is judged again, and does not stand in its own way": {
			budgets:    []permit.Budget{judgedBudget("db", "a1")},
			candidates: []permit.Candidate{judgedBy(asks("a1", 0), "db")},
			want:       outcome{Granted: []string{"a1/a"}, Records: map[string][]string{"a1": {"db"}}},
		},
		"a pod that is unavailable takes no slot, is judged and recorded": {
			budgets: []permit.Budget{judgedBudget("db"), budget("web", 0)},
			candidates: []permit.Candidate{
				under(judgedBy(unavailable(asks("a1", 0)), "db"), "web/max"), judgedBy(unavailable(asks("a2", 1)), "db"),
			},
			want: outcome{
				Granted: []string{"a1/a"}, Refused: []string{"a2/a db/other Denied"},
				Reserve: map[string][]string{"db": {"a1"}}, Records: map[string][]string{"a1": {"db"}},
			},
		},
		"an unavailable pod in a record leaves the slots to others": {
			budgets: []permit.Budget{func() permit.Budget { b := budget("web", 1); b.Sequential = true; return b }()},
			candidates: []permit.Candidate{
				judgedBy(under(unavailable(asks("a1", 0)), "web/max"), "web"), judgedBy(under(asks("b1", 1), "web/max"), "web"),
			},
			want: outcome{
				Granted: []string{"a1/a", "b1/a"}, Reserve: map[string][]string{"web": {"a1", "b1"}},
				Records: map[string][]string{"a1": {"web"}, "b1": {"web"}},
			},
		},
		"who is refused by a judge leaves the slot to the next": {
			budgets: []permit.Budget{judgedBudget("db", "a1"), budget("web", 1)},
			candidates: []permit.Candidate{
				judgedBy(asks("a1", 9), "db"), under(judgedBy(asks("a2", 0), "db"), "web/max"), under(judgedBy(asks("b1", 1), "db"), "web/max"),
			},
			want: outcome{
				Granted: []string{"a1/a", "b1/a"}, Refused: []string{"a2/a db/other Denied"},
				Reserve: map[string][]string{"db": {"a1", "b1"}, "web": {"b1"}},
				Records: map[string][]string{"a1": {"db"}, "b1": {"db", "web"}},
			},
		},
		"who gets no slot stands in nobody's way": {
			budgets:    []permit.Budget{judgedBudget("db"), budget("web", 0)},
			candidates: []permit.Candidate{under(judgedBy(asks("a1", 0), "db"), "web/max"), judgedBy(asks("a2", 1), "db")},
			want: outcome{
				Granted: []string{"a2/a"}, Refused: []string{"a1/a web/max NoRoom"},
				Reserve: map[string][]string{"db": {"a2"}}, Records: map[string][]string{"a2": {"db"}},
			},
		},
		"a PostCheck is judged, and takes nothing": {
			budgets:    []permit.Budget{judgedBudget("db", "a3")},
			candidates: []permit.Candidate{judgedBy(inPostCheck(asks("a1", 0)), "db"), judgedBy(inPostCheck(asks("b1", 1)), "db"), judgedBy(asks("b2", 2), "db")},
			want: outcome{
				Granted: []string{"b1/a", "b2/a"}, Refused: []string{"a1/a db/other Denied"},
				Reserve: map[string][]string{"db": {"a3", "b2"}}, Records: map[string][]string{"b2": {"db"}}, Invalidate: []types.UID{"a3"},
			},
		},
		"each id of a pod is judged": {
			budgets:    []permit.Budget{judgedBudget("db")},
			candidates: []permit.Candidate{judgedBy(asksAs("a1", "x", 0), "db"), judgedBy(asksAs("a1", "y", 1), "db")},
			judge: func(_ rule.RuleID, request rule.Request, _ permit.Committed) (rule.Verdict, bool) {
				if request.ID == "y" {
					return rule.Verdict{Code: rule.CodeNotAllowed}, true
				}
				return rule.Verdict{Outcome: rule.Passed}, true
			},
			want: outcome{
				Granted: []string{"a1/x"}, Refused: []string{"a1/y db/other NotAllowed"},
				Reserve: map[string][]string{"db": {"a1"}}, Records: map[string][]string{"a1": {"db"}},
			},
		},
		"the first judge that refuses is to blame": {
			budgets:    []permit.Budget{judgedBudget("cache"), judgedBudget("db")},
			candidates: []permit.Candidate{judgedBy(asks("a1", 0), "cache", "db")},
			judge: func(id rule.RuleID, _ rule.Request, _ permit.Committed) (rule.Verdict, bool) {
				if id.Object.Name == "db" {
					return rule.Verdict{Code: rule.CodeDenied}, true
				}
				return rule.Verdict{Outcome: rule.Passed}, true
			},
			want: outcome{Refused: []string{"a1/a db/other Denied"}},
		},
		"an answer that passes nobody refuses": {
			budgets:    []permit.Budget{judgedBudget("db")},
			candidates: []permit.Candidate{judgedBy(asks("a1", 0), "db")},
			judge: func(rule.RuleID, rule.Request, permit.Committed) (rule.Verdict, bool) {
				return rule.Verdict{Outcome: rule.NeedsSlot}, true
			},
			want: outcome{Refused: []string{"a1/a db/other "}},
		},
		"who is not reached waits, and keeps the reservation that it has": {
			budgets:    []permit.Budget{judgedBudget("db", "a1")},
			candidates: []permit.Candidate{judgedBy(asks("a1", 0), "db"), judgedBy(asks("b1", 0), "db"), asks("free", 0)},
			judge: func(rule.RuleID, rule.Request, permit.Committed) (rule.Verdict, bool) {
				return rule.Verdict{Outcome: rule.Passed}, false
			},
			want: outcome{Granted: []string{"free/a"}, Refused: []string{"a1/a db/other NotReached", "b1/a db/other NotReached"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			judge := tc.judge
			if judge == nil {
				judge = onePerShard
			}
			if diff := cmp.Diff(tc.want, outcomeOf(permit.Next(tc.budgets, tc.candidates, judge, epoch))); diff != "" {
				t.Errorf("plan differs (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNextWithoutAJudge refuses those that have to be judged, and nobody else.
func TestNextWithoutAJudge(t *testing.T) {
	candidates := []permit.Candidate{judgedBy(asks("a1", 0), "db"), selectedBy(asks("a2", 1), "db")}
	plan := permit.Next([]permit.Budget{judgedBudget("db")}, candidates, nil, epoch)
	want := outcome{
		Granted: []string{"a2/a"}, Refused: []string{"a1/a db/other NotReached"},
		Reserve: map[string][]string{"db": {"a2"}}, Records: map[string][]string{"a2": {"db"}},
	}
	if diff := cmp.Diff(want, outcomeOf(plan)); diff != "" {
		t.Errorf("plan differs (-want +got):\n%s", diff)
	}
}

// TestNextAsksNoJudgeInVain: whoever gets no slot is not judged. A judge costs time.
func TestNextAsksNoJudgeInVain(t *testing.T) {
	var asked []string
	judge := func(_ rule.RuleID, request rule.Request, _ permit.Committed) (rule.Verdict, bool) {
		asked = append(asked, request.Pod.Name)
		return rule.Verdict{Outcome: rule.Passed}, true
	}
	permit.Next([]permit.Budget{judgedBudget("db"), budget("web", 1)}, []permit.Candidate{
		under(judgedBy(asks("a1", 0), "db"), "web/max"), under(judgedBy(asks("b1", 1), "db"), "web/max"),
		judgedBy(unavailable(asks("c1", 2)), "db"),
	}, judge, epoch)
	if diff := cmp.Diff([]string{"a1", "c1"}, asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

// TestTaken shows what each judge sees as the round goes on.
func TestTaken(t *testing.T) {
	var reserved []int
	var pods []int
	judge := func(_ rule.RuleID, _ rule.Request, taken permit.Committed) (rule.Verdict, bool) {
		reserved, pods = append(reserved, taken.Reserved), append(pods, len(taken.Pods))
		return rule.Verdict{Outcome: rule.Passed}, true
	}
	permit.Next([]permit.Budget{judgedBudget("db", "l")}, []permit.Candidate{
		judgedBy(asks("l", 9), "db"), judgedBy(asks("a", 0), "db"), judgedBy(asksAs("a", "second", 1), "db"),
		judgedBy(unavailable(asks("b", 2)), "db"), judgedBy(unavailable(asksAs("b", "second", 3)), "db"), judgedBy(asks("c", 4), "db"),
	}, judge, epoch)
	if diff := cmp.Diff([]int{-1, 0, 0, 1, 1, 1}, reserved); diff != "" {
		t.Errorf("newly reserved: the pod itself and those that are unavailable are left out (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int{1, 1, 2, 2, 3, 3}, pods); diff != "" {
		t.Errorf("taken pods (-want +got):\n%s", diff)
	}
}
