package permit_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/permit"
	"github.com/podops-dev/podops/pkg/core/rule"
)

// crowd is a namespace with more pods to recheck than a round has time for.
type crowd struct {
	t     *rapid.T
	waits map[string]int // the round in which it began
	costs map[string]int // number of rules to recheck
	live  map[string]bool

	missed map[types.UID]int
	round  int

	// turn is the round in which a pod last had a turn, or began to wait.
	turn map[string]int
}

func (c *crowd) arrive(name string) {
	c.waits[name], c.turn[name] = c.round, c.round
	c.costs[name] = rapid.IntRange(1, 3).Draw(c.t, "rules to recheck")
	if rapid.IntRange(0, 4).Draw(c.t, "more than a round has time for") == 0 {
		c.costs[name] = 9
	}
	c.live[name] = rapid.IntRange(0, 3).Draw(c.t, "live") == 0
}

// decide plans a round with time for the given number of rechecks.
func (c *crowd) decide(time int) {
	c.round++
	b := sequentialBudget("db")
	var candidates []permit.Candidate
	for _, name := range slices.Sorted(maps.Keys(c.waits)) {
		one := selectedBy(waiting(name, c.waits[name]), "db")
		for i := range c.costs[name] {
			one.Rechecked = append(one.Rechecked, ruleID("db", fmt.Sprint("rule-", i)))
		}
		one.Missed = c.missed[one.Request.Pod.UID]
		candidates = append(candidates, one)
		if c.live[name] {
			b.Live[one.Request.Pod.UID] = reserved(name)
		}
	}
	evaluated, first := map[string]int{}, ""
	plan := permit.Next([]permit.Budget{b}, candidates, func(_ rule.RuleID, request rule.Request, _ permit.Committed) (rule.Verdict, bool) {
		name := request.Pod.Name
		if time == 0 {
			return rule.Verdict{}, false
		}
		time--
		evaluated[name]++
		if first == "" {
			first = name
		}
		if evaluated[name] < c.costs[name] {
			return rule.Verdict{Outcome: rule.Passed}, true
		}
		return rule.Verdict{Code: rule.CodeDenied}, true
	}, epoch)
	if len(plan.Grants) > 0 {
		c.t.Fatalf("%v are granted, and every pod has a rule that denies", plan.Grants)
	}
	for name := range c.waits {
		if evaluated[name] == c.costs[name] || name == first {
			c.turn[name] = c.round
		}
	}
	c.missed = plan.Missed
}

// TestEveryPodHasItsTurn shows that every pod is rechecked within a bounded number of rounds,
// with any time of the rounds and any number of new pods, and although every pod is denied and
// waits on. A pod whose rules take longer than a round has its turn too, and delays no other pod.
func TestEveryPodHasItsTurn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &crowd{t: t, waits: map[string]int{}, costs: map[string]int{}, live: map[string]bool{}, turn: map[string]int{}}
		most := 0
		for i := range rapid.IntRange(1, 40).Draw(t, "rounds") {
			for range rapid.IntRange(0, 2).Draw(t, "pods that come") {
				c.arrive(fmt.Sprintf("p%d", len(c.turn)))
			}
			if rapid.IntRange(0, 3).Draw(t, "one goes") == 0 && len(c.waits) > 0 {
				gone := rapid.SampledFrom(slices.Sorted(maps.Keys(c.waits))).Draw(t, "which")
				delete(c.waits, gone)
			}
			most = max(most, len(c.waits))
			c.decide(rapid.IntRange(1, 6).Draw(t, "time"))
			for name := range c.waits {
				// At least one pod has its turn in each round, and pods that came later have it later.
				if since := c.round - c.turn[name]; since > most {
					t.Fatalf("round %d: %s had no turn for %d rounds, and at most %d pods wait", i, name, since, most)
				}
			}
		}
	})
}

// TestNoTimeForTheNextPod shows the report of a plan on the pods that had no turn.
func TestNoTimeForTheNextPod(t *testing.T) {
	left := 1
	oneOnly := func(rule.RuleID, rule.Request, permit.Committed) (rule.Verdict, bool) {
		left--
		return rule.Verdict{Code: rule.CodeDenied}, left >= 0
	}
	late := rechecked(waiting("c1", 3), "db")
	late.Missed = 4
	candidates := []permit.Candidate{rechecked(waiting("a1", 1), "db"), rechecked(waiting("b1", 2), "db"), late}
	plan := permit.Next([]permit.Budget{sequentialBudget("db")}, candidates, oneOnly, epoch)
	if want := map[types.UID]int{"a1": 1, "b1": 1}; !maps.Equal(plan.Missed, want) {
		t.Errorf("missed %v, want %v", plan.Missed, want)
	}
	if got := plan.Denied[0]; got.Request.Pod.Name != "c1" || got.Verdict.Code != rule.CodeDenied {
		t.Errorf("the first is %+v", got)
	}
	if len(plan.Invalidate) > 0 || plan.Denied[0].Request.Stage != appsv1alpha1.StagePreCheck {
		t.Errorf("plan %+v", plan)
	}
}
