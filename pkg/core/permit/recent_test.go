package permit_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/permit"
	"github.com/podops-dev/podops/pkg/core/rule"
)

// at returns a permit some seconds after epoch.
func at(pod string, seconds int) rule.Permit {
	return rule.Permit{Pod: pod, At: epoch.Add(time.Duration(seconds) * time.Second)}
}

// counting returns the budget of the object "db", whose rule "other" reads the recent permits.
func counting(recent []rule.Permit, live ...string) permit.Budget {
	b := sequentialBudget("db", live...)
	b.KeepsRecent, b.Recent = true, recent
	return b
}

// given returns the permits of a plan for the object "db".
func given(plan permit.Plan) []rule.Permit {
	var permits []rule.Permit
	for _, recent := range plan.Recent["db"] {
		permits = append(permits, rule.Permit{Pod: recent.Pod, At: recent.Time.Time})
	}
	return permits
}

// TestRecentPermits makes plans 100 seconds after epoch.
func TestRecentPermits(t *testing.T) {
	for name, tc := range map[string]struct {
		budget     permit.Budget
		candidates []permit.Candidate
		want       []rule.Permit
		wantSeen   [][]rule.Permit // the permits that each recheck saw, in order
		wantWrite  bool
	}{
		"nothing is given": {budget: counting([]rule.Permit{at("old", 1)}), want: []rule.Permit{at("old", 1)}},
		"each permit is seen by the next": {
			budget:     counting([]rule.Permit{at("old", 1)}),
			candidates: []permit.Candidate{rechecked(waiting("p", 0), "db"), rechecked(unavailable(waiting("q", 1)), "db")},
			want:       []rule.Permit{at("old", 1), at("p", 100), at("q", 100)},
			wantSeen:   [][]rule.Permit{{at("old", 1)}, {at("old", 1), at("p", 100)}},
			wantWrite:  true,
		},
		"the ids of a pod share one": {
			budget:     counting(nil),
			candidates: []permit.Candidate{rechecked(waitingAs("p", "x", 0), "db"), rechecked(waitingAs("p", "y", 1), "db")},
			want:       []rule.Permit{at("p", 100)},
			wantSeen:   [][]rule.Permit{nil, nil},
			wantWrite:  true,
		},
		"a PostCheck is none": {
			budget: counting(nil), candidates: []permit.Candidate{rechecked(inPostCheck(waiting("p", 0)), "db")},
			wantSeen: [][]rule.Permit{nil},
		},
		"a reserved pod sees all but its own, which stays": {
			budget:     counting([]rule.Permit{at("p", 1), at("p", 91), at("q", 92)}, "p"),
			candidates: []permit.Candidate{rechecked(waiting("p", 0), "db")},
			want:       []rule.Permit{at("p", 1), at("p", 91), at("q", 92)},
			wantSeen:   [][]rule.Permit{{at("p", 1), at("q", 92)}},
		},
		"a permit of the pod that was stamped is not its own any more": {
			budget:     counting([]rule.Permit{at("p", 91)}),
			candidates: []permit.Candidate{rechecked(unavailable(waiting("p", 0)), "db")},
			want:       []rule.Permit{at("p", 91), at("p", 100)},
			wantSeen:   [][]rule.Permit{{at("p", 91)}},
			wantWrite:  true,
		},
		"an old reservation is recorded again": {
			budget:     counting([]rule.Permit{at("p", 89), at("q", 92)}, "p"),
			candidates: []permit.Candidate{rechecked(waiting("p", 0), "db")},
			want:       []rule.Permit{at("q", 92), at("p", 100)},
			wantSeen:   [][]rule.Permit{{at("q", 92)}},
			wantWrite:  true,
		},
		"a reservation from before permits were kept is recorded now": {
			budget:     counting(nil, "p"),
			candidates: []permit.Candidate{rechecked(waiting("p", 0), "db")},
			want:       []rule.Permit{at("p", 100)},
			wantSeen:   [][]rule.Permit{nil},
			wantWrite:  true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := slices.Clone(tc.budget.Recent)
			var seen [][]rule.Permit
			recheck := func(_ rule.RuleID, _ rule.Request, committed permit.Committed) (rule.Verdict, bool) {
				seen = append(seen, slices.Clone(committed.Permits))
				return rule.Verdict{Outcome: rule.Passed}, true
			}
			plan := permit.Next([]permit.Budget{tc.budget}, tc.candidates, recheck, epoch.Add(100*time.Second))
			if diff := cmp.Diff(tc.want, given(plan)); diff != "" {
				t.Errorf("permits differ (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantSeen, seen, equateEmpty()); diff != "" {
				t.Errorf("permits that the rechecks saw differ (-want +got):\n%s", diff)
			}
			if _, writes := plan.Reserve["db"]; writes != tc.wantWrite {
				t.Errorf("the record is written: %t, want %t", writes, tc.wantWrite)
			}
			if diff := cmp.Diff(before, tc.budget.Recent); diff != "" {
				t.Errorf("the budget was modified:\n%s", diff)
			}
		})
	}
}

func equateEmpty() cmp.Option {
	return cmp.FilterValues(func(a, b []rule.Permit) bool { return len(a)+len(b) == 0 }, cmp.Ignore())
}

// TestRecentPermitsAreOptIn shows that objects without KeepsRecent keep and show no permits.
func TestRecentPermitsAreOptIn(t *testing.T) {
	b := sequentialBudget("db")
	b.Recent = []rule.Permit{at("old", 1)}
	recheck := func(_ rule.RuleID, _ rule.Request, committed permit.Committed) (rule.Verdict, bool) {
		if len(committed.Permits) > 0 {
			t.Errorf("the recheck sees %v", committed.Permits)
		}
		return rule.Verdict{Outcome: rule.Passed}, true
	}
	plan := permit.Next([]permit.Budget{b}, []permit.Candidate{rechecked(waiting("p", 0), "db")}, recheck, epoch)
	if len(plan.Recent) != 0 {
		t.Errorf("it keeps %v", plan.Recent)
	}
}

// TestRecentPermitsAreBounded shows that the oldest permits are dropped.
func TestRecentPermitsAreBounded(t *testing.T) {
	var recent []rule.Permit
	for i := range appsv1alpha1.MaxRecentPermits - 1 {
		recent = append(recent, at(fmt.Sprintf("old-%02d", i), i))
	}
	most := 0
	recheck := func(_ rule.RuleID, _ rule.Request, committed permit.Committed) (rule.Verdict, bool) {
		most = max(most, len(committed.Permits))
		return rule.Verdict{Outcome: rule.Passed}, true
	}
	plan := permit.Next([]permit.Budget{counting(recent)}, []permit.Candidate{
		rechecked(waiting("p", 0), "db"), rechecked(waiting("q", 1), "db"), rechecked(waiting("r", 2), "db"),
	}, recheck, epoch.Add(200*time.Second))
	want := append(slices.Clone(recent[2:]), at("p", 200), at("q", 200), at("r", 200))
	if diff := cmp.Diff(want, given(plan)); diff != "" {
		t.Errorf("permits differ (-want +got):\n%s", diff)
	}
	if most != appsv1alpha1.MaxRecentPermits {
		t.Errorf("the recheck saw up to %d permits, want %d", most, appsv1alpha1.MaxRecentPermits)
	}
}

// TestTimeOfAPermit shows that it is a whole second, as the API server stores it, and never in
// the past: a permit does not leave a window too early.
func TestTimeOfAPermit(t *testing.T) {
	for now, want := range map[time.Duration]int{0: 0, time.Nanosecond: 1, 999 * time.Millisecond: 1, time.Second: 1} {
		plan := permit.Next([]permit.Budget{counting(nil)}, []permit.Candidate{rechecked(waiting("p", 0), "db")}, passes, epoch.Add(now))
		if diff := cmp.Diff([]rule.Permit{at("p", want)}, given(plan)); diff != "" {
			t.Errorf("%s after epoch (-want +got):\n%s", now, diff)
		}
	}
}
