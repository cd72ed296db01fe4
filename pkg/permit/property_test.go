package permit_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/permit"
	"github.com/podops-dev/podops/pkg/policy"
)

// situation is what one round has to plan.
type situation struct {
	budgets    []permit.Budget
	candidates []permit.Candidate
}

func drawSituation(t *rapid.T) situation {
	s := situation{}
	objects := []string{"a", "b", "c"}[:rapid.IntRange(1, 3).Draw(t, "objects")]
	for _, object := range objects {
		b := permit.Budget{Object: object, Slots: map[string]int{}, Live: map[types.UID]appsv1alpha1.ReservedPod{}}
		for _, rule := range []string{"r", "s"}[:rapid.IntRange(1, 2).Draw(t, "rules")] {
			b.Slots[rule] = rapid.IntRange(0, 3).Draw(t, "slots")
		}
		s.budgets = append(s.budgets, b)
	}
	for i := range rapid.IntRange(0, 6).Draw(t, "pods") {
		name := fmt.Sprintf("p%d", i)
		available := rapid.IntRange(0, 3).Draw(t, "available") > 0
		selecting := rapid.SliceOfNDistinct(rapid.SampledFrom(objects), 0, len(objects), rapid.ID[string]).Draw(t, "selecting")
		slices.Sort(selecting)
		for _, object := range selecting {
			if available && rapid.IntRange(0, 3).Draw(t, "live") == 0 {
				s.budgets[slices.Index(objects, object)].Live[types.UID(name)] = reserved(name)
			}
		}
		for _, id := range []string{"x", "y"}[:rapid.IntRange(0, 2).Draw(t, "ids")] {
			c := asksAs(name, id, rapid.IntRange(0, 3).Draw(t, "since"))
			c.Budgets = selecting
			if !available {
				c = unavailable(c)
			}
			for _, object := range selecting {
				for _, rule := range slices.Sorted(maps.Keys(s.budgets[slices.Index(objects, object)].Slots)) {
					if rapid.Bool().Draw(t, "needs") {
						c.Needs = append(c.Needs, ruleID(object, rule))
					}
				}
			}
			s.candidates = append(s.candidates, c)
		}
	}
	return s
}

func (s situation) clone() situation {
	copied := situation{}
	for _, b := range s.budgets {
		b.Slots, b.Live = maps.Clone(b.Slots), maps.Clone(b.Live)
		copied.budgets = append(copied.budgets, b)
	}
	for _, c := range s.candidates {
		fact := *c.Request.Pod
		c.Request.Pod = &fact
		c.Needs, c.Budgets = slices.Clone(c.Needs), slices.Clone(c.Budgets)
		copied.candidates = append(copied.candidates, c)
	}
	return copied
}

// TestNextIsAFunctionOfItsArguments: it changes none of them, and neither the order of
// budgets or candidates nor that of maps is one.
func TestNextIsAFunctionOfItsArguments(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSituation(t)
		before := s.clone()
		plan := permit.Next(s.budgets, s.candidates, nil, epoch)
		if diff := cmp.Diff(before.budgets, s.budgets) + cmp.Diff(before.candidates, s.candidates); diff != "" {
			t.Fatalf("Next modified its arguments:\n%s", diff)
		}
		budgets := rapid.Permutation(s.budgets).Draw(t, "budgets")
		candidates := rapid.Permutation(s.candidates).Draw(t, "candidates")
		if diff := cmp.Diff(plan, permit.Next(budgets, candidates, nil, epoch)); diff != "" {
			t.Fatalf("Next depends on an order:\n%s", diff)
		}
	})
}

// TestNextHandsOutNoMoreThanThereIs holds each plan against what a slot means.
func TestNextHandsOutNoMoreThanThereIs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSituation(t)
		plan := permit.Next(s.budgets, s.candidates, nil, epoch)
		granted := map[types.UID]bool{}
		for _, request := range plan.Grants {
			granted[request.Pod.UID] = true
		}
		if len(plan.Grants)+len(plan.Refused) != len(s.candidates) {
			t.Fatalf("%d permits and %d refusals for %d requests", len(plan.Grants), len(plan.Refused), len(s.candidates))
		}
		for _, b := range s.budgets {
			checkReservations(t, s, b, plan, granted)
			for rule, slots := range b.Slots {
				checkSlots(t, s, b, ruleID(b.Object, rule), slots, granted)
			}
		}
		checkRefusals(t, s, plan, granted)
	})
}

// checkReservations: every available pod that is granted, and that the object selects,
// is in its record; whatever is live stays in it; whatever else is live is touched.
func checkReservations(t *rapid.T, s situation, b permit.Budget, plan permit.Plan, granted map[types.UID]bool) {
	want := map[types.UID]bool{}
	for uid := range b.Live {
		want[uid] = true
		if granted[uid] == slices.Contains(plan.Touch, uid) {
			t.Fatalf("%s is live: granted %t and touched %t", uid, granted[uid], slices.Contains(plan.Touch, uid))
		}
	}
	for _, c := range s.candidates {
		if c.Request.Pod.Available && granted[c.Request.Pod.UID] && slices.Contains(c.Budgets, b.Object) {
			want[c.Request.Pod.UID] = true
			if !slices.Contains(plan.NeedsRecords[c.Request.Pod.UID], b.Object) {
				t.Fatalf("%s may be stamped without the record of %s", c.Request.Pod.Name, b.Object)
			}
		}
	}
	got := map[types.UID]bool{}
	for _, pod := range plan.Reserve[b.Object] {
		got[pod.UID] = true
	}
	if _, added := plan.Reserve[b.Object]; !added {
		for uid := range b.Live {
			got[uid] = true
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("record of %s differs (-want +got):\n%s", b.Object, diff)
	}
}

// checkSlots: of the pods that needed a slot of the rule, no more were granted than
// there are slots.
func checkSlots(t *rapid.T, s situation, b permit.Budget, rule policy.RuleID, slots int, granted map[types.UID]bool) {
	took := map[types.UID]bool{}
	for uid, requests := range byUID(s.candidates) {
		_, live := b.Live[uid]
		all := !slices.ContainsFunc(requests, func(c permit.Candidate) bool { return !slices.Contains(c.Needs, rule) })
		if granted[uid] && requests[0].Request.Pod.Available && all && !live {
			took[uid] = true
		}
	}
	if len(took) > slots {
		t.Fatalf("%s gave %d slots of %d", rule, len(took), slots)
	}
}

func byUID(candidates []permit.Candidate) map[types.UID][]permit.Candidate {
	pods := map[types.UID][]permit.Candidate{}
	for _, c := range candidates {
		pods[c.Request.Pod.UID] = append(pods[c.Request.Pod.UID], c)
	}
	return pods
}

// checkRefusals: no pod is refused that is unavailable, and for each that is, the slots
// of the rule that is blamed have gone to others.
func checkRefusals(t *rapid.T, s situation, plan permit.Plan, granted map[types.UID]bool) {
	for _, refusal := range plan.Refused {
		pod := refusal.Request.Pod
		if !pod.Available {
			t.Fatalf("%s is unavailable and is refused", pod.Name)
		}
		i := slices.IndexFunc(s.budgets, func(b permit.Budget) bool { return b.Object == refusal.Rule.Object.Name })
		taken := 0
		for uid, requests := range byUID(s.candidates) {
			_, live := s.budgets[i].Live[uid]
			if granted[uid] && !live && requests[0].Request.Pod.Available && slices.Contains(requests[0].Budgets, s.budgets[i].Object) {
				taken++
			}
		}
		if slots := s.budgets[i].Slots[refusal.Rule.Rule]; taken < slots {
			t.Fatalf("%s is refused by %s, which has given %d of %d slots", pod.Name, refusal.Rule, taken, slots)
		}
	}
}
