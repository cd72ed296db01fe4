package permit_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/permit"
	"github.com/podops-dev/podops/pkg/core/rule"
)

// situation is the input of one round.
type situation struct {
	budgets    []permit.Budget
	candidates []permit.Candidate
}

func drawSituation(t *rapid.T) situation {
	s := situation{}
	objects := []string{"a", "b", "c"}[:rapid.IntRange(1, 3).Draw(t, "objects")]
	for _, object := range objects {
		b := permit.Budget{Ruleset: object, Slots: map[string]int{}, Live: map[types.UID]appsv1alpha1.ReservedPod{}}
		b.Disruption = rapid.IntRange(0, 2).Draw(t, "disruption") == 0
		for _, rule := range []string{"r", "s"}[:rapid.IntRange(1, 2).Draw(t, "rules")] {
			b.Slots[rule] = rapid.IntRange(-1, 3).Draw(t, "slots")
		}
		b.Sequential, b.KeepsRecent = rapid.Bool().Draw(t, "sequential"), rapid.Bool().Draw(t, "keeps recent")
		if b.KeepsRecent {
			b.Recent = []rule.Permit{at("gone", 0), at("a0", rapid.IntRange(1, 20).Draw(t, "recent"))}
		}
		if rapid.Bool().Draw(t, "counts owners") {
			b.Owners = map[types.UID]int{"clones": rapid.IntRange(1, 6).Draw(t, "pods of the workload")}
			b.Remembered = map[types.UID]int{"clones": rapid.IntRange(0, 6).Draw(t, "remembered")}
		}
		s.budgets = append(s.budgets, b)
	}
	for i := range rapid.IntRange(0, 6).Draw(t, "pods") {
		name := fmt.Sprintf("%c%d", "ab"[i%2], i) // of shard a or b
		available := rapid.IntRange(0, 3).Draw(t, "available") > 0
		ready := available || rapid.Bool().Draw(t, "ready")
		cloned := rapid.Bool().Draw(t, "of an unknown workload")
		selecting := rapid.SliceOfNDistinct(rapid.SampledFrom(objects), 0, len(objects), rapid.ID[string]).Draw(t, "selecting")
		slices.Sort(selecting)
		for _, object := range selecting {
			b := s.budgets[slices.Index(objects, object)]
			if (b.Disruption && ready || !b.Disruption && available || b.Sequential) && rapid.IntRange(0, 3).Draw(t, "live") == 0 {
				b.Live[types.UID(name)] = reserved(name)
			}
		}
		for _, id := range []string{"x", "y"}[:rapid.IntRange(0, 2).Draw(t, "ids")] {
			c := waitingAs(name, id, rapid.IntRange(0, 3).Draw(t, "since"))
			c.Budgets, c.Request.Pod.Ready = selecting, ready
			if cloned {
				c.Request.Pod.Owner.UID = "clones"
			}
			if !available {
				c = unavailable(c)
			}
			if rapid.IntRange(0, 5).Draw(t, "post check") == 0 {
				c = inPostCheck(c)
			}
			for _, object := range selecting {
				if s.budgets[slices.Index(objects, object)].Sequential {
					c.Rechecked = append(c.Rechecked, ruleID(object, "other"))
				}
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

// counts reports whether a permit of the pod takes a slot of the budget.
func counts(b permit.Budget, pod *rule.PodFact) bool {
	return b.Disruption && pod.Ready || !b.Disruption && pod.Available
}

func (s situation) clone() situation {
	copied := situation{}
	for _, b := range s.budgets {
		b.Slots, b.Live, b.Recent = maps.Clone(b.Slots), maps.Clone(b.Live), slices.Clone(b.Recent)
		b.Owners, b.Remembered = maps.Clone(b.Owners), maps.Clone(b.Remembered)
		copied.budgets = append(copied.budgets, b)
	}
	for _, c := range s.candidates {
		fact := *c.Request.Pod
		c.Request.Pod = &fact
		c.Needs, c.Budgets, c.Rechecked = slices.Clone(c.Needs), slices.Clone(c.Budgets), slices.Clone(c.Rechecked)
		copied.candidates = append(copied.candidates, c)
	}
	return copied
}

// TestNextIsAFunctionOfItsArguments shows that Next modifies none of them, and that the order of
// budgets, candidates and maps does not matter.
func TestNextIsAFunctionOfItsArguments(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSituation(t)
		before := s.clone()
		plan := permit.Next(s.budgets, s.candidates, onePerShard, epoch.Add(25*time.Second))
		if diff := cmp.Diff(before.budgets, s.budgets) + cmp.Diff(before.candidates, s.candidates); diff != "" {
			t.Fatalf("Next modified its arguments:\n%s", diff)
		}
		budgets := rapid.Permutation(s.budgets).Draw(t, "budgets")
		candidates := rapid.Permutation(s.candidates).Draw(t, "candidates")
		if diff := cmp.Diff(plan, permit.Next(budgets, candidates, onePerShard, epoch.Add(25*time.Second))); diff != "" {
			t.Fatalf("Next depends on an order:\n%s", diff)
		}
	})
}

// TestNextAllocatesNoMoreSlotsThanThereAre checks each plan against the definition of a slot.
func TestNextAllocatesNoMoreSlotsThanThereAre(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSituation(t)
		plan := permit.Next(s.budgets, s.candidates, onePerShard, epoch.Add(25*time.Second))
		granted := map[types.UID]bool{}
		for _, request := range plan.Grants {
			if request.Stage == appsv1alpha1.StagePreCheck {
				granted[request.Pod.UID] = true
			}
		}
		if len(plan.Grants)+len(plan.Denied) != len(s.candidates) {
			t.Fatalf("%d permits and %d denials for %d requests", len(plan.Grants), len(plan.Denied), len(s.candidates))
		}
		for _, b := range s.budgets {
			checkReservations(t, s, b, plan, granted)
			checkOwners(t, s, b, plan, granted)
			for rule, slots := range b.Slots {
				checkSlots(t, s, b, ruleID(b.Ruleset, rule), slots, granted)
			}
		}
		checkRefusals(t, s, plan, granted)
		checkShards(t, s, granted)
	})
}

// checkReservations checks that the record of the object contains every granted pod that the
// object selects, if the pod takes a slot or the object is sequential; that live reservations
// stay in it; and that the live reservations of pods without a permit are invalidated.
func checkReservations(t *rapid.T, s situation, b permit.Budget, plan permit.Plan, granted map[types.UID]bool) {
	want := map[types.UID]bool{}
	for uid := range b.Live {
		want[uid] = true
		if granted[uid] == slices.Contains(plan.Invalidate, uid) {
			t.Fatalf("%s is live: granted %t and invalidated %t", uid, granted[uid], slices.Contains(plan.Invalidate, uid))
		}
	}
	for _, c := range s.candidates {
		_, counted := b.Owners[c.Request.Pod.Owner.UID]
		if (counts(b, c.Request.Pod) || b.Sequential || counted) && granted[c.Request.Pod.UID] && slices.Contains(c.Budgets, b.Ruleset) {
			want[c.Request.Pod.UID] = true
			if !slices.Contains(plan.NeedsRecords[c.Request.Pod.UID], b.Ruleset) {
				t.Fatalf("%s may be stamped without the record of %s", c.Request.Pod.Name, b.Ruleset)
			}
		}
	}
	got := map[types.UID]bool{}
	for _, pod := range plan.Reserve[b.Ruleset] {
		got[pod.UID] = true
	}
	if _, added := plan.Reserve[b.Ruleset]; !added {
		for uid := range b.Live {
			got[uid] = true
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("record of %s differs (-want +got):\n%s", b.Ruleset, diff)
	}
}

// checkOwners checks that the record contains the number of pods of a workload whose desired
// number is unknown once one of them is granted, and that it is written. A number that still
// counts is never lowered.
func checkOwners(t *rapid.T, s situation, b permit.Budget, plan permit.Plan, granted map[types.UID]bool) {
	want := b.Remembered["clones"]
	for _, c := range s.candidates {
		if granted[c.Request.Pod.UID] && c.Request.Pod.Owner.UID == "clones" && slices.Contains(c.Budgets, b.Ruleset) {
			want = max(want, b.Owners["clones"])
		}
	}
	got := 0
	for _, owner := range plan.Owners[b.Ruleset] {
		got = int(owner.Pods)
	}
	if got != want {
		t.Fatalf("record of %s counts %d pods of the workload, want %d", b.Ruleset, got, want)
	}
	if _, written := plan.Reserve[b.Ruleset]; want > b.Remembered["clones"] && !written {
		t.Fatalf("record of %s is not written", b.Ruleset)
	}
}

// checkSlots checks that no more pods that needed a slot of the rule were granted than there
// are slots, and none at all, reserved or not, when the number is below zero.
func checkSlots(t *rapid.T, s situation, b permit.Budget, rule rule.RuleID, slots int, granted map[types.UID]bool) {
	took := map[types.UID]bool{}
	for uid, requests := range byUID(s.candidates) {
		_, live := b.Live[uid]
		requests = slices.DeleteFunc(requests, func(c permit.Candidate) bool { return c.Request.Stage == appsv1alpha1.StagePostCheck })
		all := !slices.ContainsFunc(requests, func(c permit.Candidate) bool { return !slices.Contains(c.Needs, rule) })
		if granted[uid] && counts(b, requests[0].Request.Pod) && all && (!live || slots < 0) {
			took[uid] = true
		}
	}
	if len(took) > max(0, slots) {
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

// checkRefusals checks that no pod is denied a slot that it does not take, and that the slots of the
// rule that denies a pod were taken by others. A pod that a recheck denies has
// another committed pod in its shard.
func checkRefusals(t *rapid.T, s situation, plan permit.Plan, granted map[types.UID]bool) {
	for _, denial := range plan.Denied {
		pod := denial.Request.Pod
		if denial.Verdict.Code == rule.CodeDenied {
			if !slices.ContainsFunc(committedPods(s, granted), func(uid types.UID) bool { return uid != pod.UID && shardOf(uid) == shardOf(pod.UID) }) {
				t.Fatalf("%s is denied by %s, and no other pod of its shard is committed", pod.Name, denial.Rule)
			}
			continue
		}
		i := slices.IndexFunc(s.budgets, func(b permit.Budget) bool { return b.Ruleset == denial.Rule.Ruleset.Name })
		if !counts(s.budgets[i], pod) || denial.Request.Stage == appsv1alpha1.StagePostCheck {
			t.Fatalf("%s needs no slot and is denied one", pod.Name)
		}
		committed := 0
		for uid, requests := range byUID(s.candidates) {
			_, live := s.budgets[i].Live[uid]
			if granted[uid] && !live && counts(s.budgets[i], requests[0].Request.Pod) && slices.Contains(requests[0].Budgets, s.budgets[i].Ruleset) {
				committed++
			}
		}
		if slots := s.budgets[i].Slots[denial.Rule.Rule]; committed < slots {
			t.Fatalf("%s is denied by %s, which has allocated %d of %d slots", pod.Name, denial.Rule, committed, slots)
		}
	}
}

// committedPods returns the pods that are granted or hold a live reservation.
func committedPods(s situation, granted map[types.UID]bool) []types.UID {
	committed := maps.Clone(granted)
	for _, b := range s.budgets {
		for uid := range b.Live {
			committed[uid] = true
		}
	}
	return slices.Sorted(maps.Keys(committed))
}

// checkShards checks that a rechecked pod is alone in its shard, except for pods without a
// recheck.
func checkShards(t *rapid.T, s situation, granted map[types.UID]bool) {
	rechecked := map[types.UID]bool{}
	for _, c := range s.candidates {
		if len(c.Rechecked) > 0 && granted[c.Request.Pod.UID] {
			rechecked[c.Request.Pod.UID] = true
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(rechecked)) {
		for _, other := range committedPods(s, granted) {
			if other != uid && shardOf(other) == shardOf(uid) && (rechecked[other] || !granted[other]) {
				t.Fatalf("%s was permitted beside %s", uid, other)
			}
		}
	}
}
