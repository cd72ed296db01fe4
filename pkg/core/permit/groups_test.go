package permit_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/permit"
	"github.com/podops-dev/podops/pkg/core/rule"
)

// leading puts available pods with a pod, as the workers of its group.
func leading(c permit.Candidate, object string, pods int) permit.Candidate {
	c.With = map[string]int{object: pods}
	return c
}

func TestPodsThatGoWithAPodTakeSlots(t *testing.T) {
	leader := func(name string, minute int) permit.Candidate {
		return leading(under(waiting(name, minute), "web/max"), "web", 2)
	}
	for name, tc := range map[string]struct {
		budget     permit.Budget
		candidates []permit.Candidate
		want       []string
	}{
		"four groups of three under three slots": {
			budget: budget("web", 3), candidates: []permit.Candidate{leader("a", 0), leader("b", 1), leader("c", 2), leader("d", 3)}, want: []string{"a"},
		},
		"a group is permitted as one":                  {budget: budget("web", 2), candidates: []permit.Candidate{leader("a", 0)}},
		"a single pod passes a group that does not":    {budget: budget("web", 2), candidates: []permit.Candidate{leader("a", 0), under(waiting("b", 1), "web/max")}, want: []string{"b"}},
		"a leader that is unavailable takes its group": {budget: budget("web", 1), candidates: []permit.Candidate{unavailable(leader("a", 0))}},
		"and passes with slots for the group":          {budget: budget("web", 2), candidates: []permit.Candidate{unavailable(leader("a", 0)), leader("b", 1)}, want: []string{"a"}},
		"a group that is reserved has its slots":       {budget: budget("web", 0, "a"), candidates: []permit.Candidate{leader("a", 0), leader("b", 1)}, want: []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			plan := permit.Next([]permit.Budget{tc.budget}, tc.candidates, nil, epoch)
			for _, grant := range plan.Grants {
				got = append(got, grant.Pod.Name)
				if len(plan.NeedsRecords[grant.Pod.UID]) != 1 {
					t.Errorf("the permit of %s is not recorded", grant.Pod.Name)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("grants (-want +got):\n%s", diff)
			}
		})
	}
}

// TestGroupsNeverOvershoot plays every order in which two rounds see the record, the permits and the deletions of
// groups of several sizes, and counts the pods that remain.
func TestGroupsNeverOvershoot(t *testing.T) {
	const size, groups = 3, 4
	for slots := range size*groups + 1 {
		live, gone := map[types.UID]appsv1alpha1.ReservedPod{}, 0
		for round := range groups {
			var candidates []permit.Candidate
			for i := range groups {
				candidates = append(candidates, leading(under(waiting("leader-"+strconv.Itoa(i), i), "web/max"), "web", size-1))
			}
			b := budget("web", slots-gone)
			b.Live = live
			plan := permit.Next([]permit.Budget{b}, candidates, func(rule.RuleID, rule.Request, permit.Committed) (rule.Verdict, bool) {
				return rule.Verdict{Outcome: rule.Passed}, true
			}, epoch.Add(time.Duration(round)*time.Second))
			live = map[types.UID]appsv1alpha1.ReservedPod{}
			for _, reserved := range plan.Reserve["web"] {
				live[reserved.UID] = reserved
			}
			if gone = size * len(live); gone > slots {
				t.Fatalf("%d pods go under %d slots", gone, slots)
			}
			if len(plan.Reserve) == 0 {
				break
			}
		}
		if want := slots / size * size; gone > 0 && gone != want {
			t.Errorf("%d pods go under %d slots, want %d", gone, slots, want)
		}
	}
}
