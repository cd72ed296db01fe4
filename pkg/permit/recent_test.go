package permit_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/permit"
	"github.com/podops-dev/podops/pkg/rule"
)

// at is a permit some seconds after epoch.
func at(pod string, seconds int) rule.Permit {
	return rule.Permit{Pod: pod, At: epoch.Add(time.Duration(seconds) * time.Second)}
}

// counting is the budget of the object "db", whose rule "other" reads the permits given
// lately.
func counting(recent []rule.Permit, live ...string) permit.Budget {
	b := judgedBudget("db", live...)
	b.KeepsRecent, b.Recent = true, recent
	return b
}

// given are the permits of a plan for the object "db".
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
		wantJudged [][]rule.Permit // what the judge saw, in order
		wantWrite  bool
	}{
		"nothing is given": {budget: counting([]rule.Permit{at("old", 1)}), want: []rule.Permit{at("old", 1)}},
		"each permit is seen by the next": {
			budget:     counting([]rule.Permit{at("old", 1)}),
			candidates: []permit.Candidate{judgedBy(asks("p", 0), "db"), judgedBy(unavailable(asks("q", 1)), "db")},
			want:       []rule.Permit{at("old", 1), at("p", 100), at("q", 100)},
			wantJudged: [][]rule.Permit{{at("old", 1)}, {at("old", 1), at("p", 100)}},
			wantWrite:  true,
		},
		"the ids of a pod share one": {
			budget:     counting(nil),
			candidates: []permit.Candidate{judgedBy(asksAs("p", "x", 0), "db"), judgedBy(asksAs("p", "y", 1), "db")},
			want:       []rule.Permit{at("p", 100)},
			wantJudged: [][]rule.Permit{nil, nil},
			wantWrite:  true,
		},
		"a PostCheck is none": {
			budget: counting(nil), candidates: []permit.Candidate{judgedBy(inPostCheck(asks("p", 0)), "db")},
			wantJudged: [][]rule.Permit{nil},
		},
		"a reserved pod sees all but its own, which stays": {
			budget:     counting([]rule.Permit{at("p", 1), at("p", 91), at("q", 92)}, "p"),
			candidates: []permit.Candidate{judgedBy(asks("p", 0), "db")},
			want:       []rule.Permit{at("p", 1), at("p", 91), at("q", 92)},
			wantJudged: [][]rule.Permit{{at("p", 1), at("q", 92)}},
		},
		"a permit of the pod that was stamped is not its own any more": {
			budget:     counting([]rule.Permit{at("p", 91)}),
			candidates: []permit.Candidate{judgedBy(unavailable(asks("p", 0)), "db")},
			want:       []rule.Permit{at("p", 91), at("p", 100)},
			wantJudged: [][]rule.Permit{{at("p", 91)}},
			wantWrite:  true,
		},
		"what was reserved long ago is recorded anew": {
			budget:     counting([]rule.Permit{at("p", 89), at("q", 92)}, "p"),
			candidates: []permit.Candidate{judgedBy(asks("p", 0), "db")},
			want:       []rule.Permit{at("q", 92), at("p", 100)},
			wantJudged: [][]rule.Permit{{at("q", 92)}},
			wantWrite:  true,
		},
		"what was reserved before permits were kept is recorded now": {
			budget:     counting(nil, "p"),
			candidates: []permit.Candidate{judgedBy(asks("p", 0), "db")},
			want:       []rule.Permit{at("p", 100)},
			wantJudged: [][]rule.Permit{nil},
			wantWrite:  true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := slices.Clone(tc.budget.Recent)
			var rechecked [][]rule.Permit
			judge := func(_ rule.RuleID, _ rule.Request, taken permit.Committed) (rule.Verdict, bool) {
				rechecked = append(rechecked, slices.Clone(taken.Permits))
				return rule.Verdict{Outcome: rule.Passed}, true
			}
			plan := permit.Next([]permit.Budget{tc.budget}, tc.candidates, judge, epoch.Add(100*time.Second))
			if diff := cmp.Diff(tc.want, given(plan)); diff != "" {
				t.Errorf("permits differ (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantJudged, rechecked, equateEmpty()); diff != "" {
				t.Errorf("what the judge saw differs (-want +got):\n%s", diff)
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

// TestRecentPermitsOfOthers: objects that do not ask for them keep none, and show none.
func TestRecentPermitsOfOthers(t *testing.T) {
	b := judgedBudget("db")
	b.Recent = []rule.Permit{at("old", 1)}
	judge := func(_ rule.RuleID, _ rule.Request, taken permit.Committed) (rule.Verdict, bool) {
		if len(taken.Permits) > 0 {
			t.Errorf("the judge sees %v", taken.Permits)
		}
		return rule.Verdict{Outcome: rule.Passed}, true
	}
	plan := permit.Next([]permit.Budget{b}, []permit.Candidate{judgedBy(asks("p", 0), "db")}, judge, epoch)
	if len(plan.Recent) != 0 {
		t.Errorf("it keeps %v", plan.Recent)
	}
}

// TestRecentPermitsAreBounded: the oldest go.
func TestRecentPermitsAreBounded(t *testing.T) {
	var recent []rule.Permit
	for i := range appsv1alpha1.MaxRecentPermits - 1 {
		recent = append(recent, at(fmt.Sprintf("old-%02d", i), i))
	}
	most := 0
	judge := func(_ rule.RuleID, _ rule.Request, taken permit.Committed) (rule.Verdict, bool) {
		most = max(most, len(taken.Permits))
		return rule.Verdict{Outcome: rule.Passed}, true
	}
	plan := permit.Next([]permit.Budget{counting(recent)}, []permit.Candidate{
		judgedBy(asks("p", 0), "db"), judgedBy(asks("q", 1), "db"), judgedBy(asks("r", 2), "db"),
	}, judge, epoch.Add(200*time.Second))
	want := append(slices.Clone(recent[2:]), at("p", 200), at("q", 200), at("r", 200))
	if diff := cmp.Diff(want, given(plan)); diff != "" {
		t.Errorf("permits differ (-want +got):\n%s", diff)
	}
	if most != appsv1alpha1.MaxRecentPermits {
		t.Errorf("the judge saw up to %d, want %d", most, appsv1alpha1.MaxRecentPermits)
	}
}

// TestTimeOfAPermit is a whole second, as the API server stores it, and never one that
// is over: a permit does not leave a window before its time.
func TestTimeOfAPermit(t *testing.T) {
	for now, want := range map[time.Duration]int{0: 0, time.Nanosecond: 1, 999 * time.Millisecond: 1, time.Second: 1} {
		plan := permit.Next([]permit.Budget{counting(nil)}, []permit.Candidate{judgedBy(asks("p", 0), "db")}, passes, epoch.Add(now))
		if diff := cmp.Diff([]rule.Permit{at("p", want)}, given(plan)); diff != "" {
			t.Errorf("%s after epoch (-want +got):\n%s", now, diff)
		}
	}
}
