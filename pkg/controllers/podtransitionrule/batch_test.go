package podtransitionrule

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/permit"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/engine/evaluation"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/test/builders"
)

// TestBatchesAreGathered shows that pods that begin to wait one by one share the writes of the record, and no
// pod waits for longer than the interval.
func TestBatchesAreGathered(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.reconciler.batchInterval = time.Second
	s.rules("web", atMostUnavailable("five", "5"))
	s.put(waits(0).Obj(), web(1).Obj(), web(2).Obj(), web(3).Obj(), web(4).Obj())
	expect := func(when string, after time.Duration, writes int, want []string, wait time.Duration) {
		t.Helper()
		result := s.step(after)
		if diff := cmp.Diff(want, append([]string{}, s.permitted()...)); diff != "" {
			t.Errorf("%s: permitted pods differ (-want +got):\n%s", when, diff)
		}
		if got := len(s.written()); got != writes {
			t.Errorf("%s: %d writes of the status, want %d", when, got, writes)
		}
		if wait > 0 && result.RequeueAfter != wait {
			t.Errorf("%s: the next round comes after %s, want %s", when, result.RequeueAfter, wait)
		}
	}
	expect("the first pod", 0, 1, names(0, 1), 0)
	s.put(waits(1).Obj())
	expect("too soon", 100*time.Millisecond, 0, names(0, 0), 150*time.Millisecond)
	expect("soon after the first", 150*time.Millisecond, 1, names(1, 2), 0)
	s.put(waits(2).Obj(), waits(3).Obj())
	expect("two pods too soon", 100*time.Millisecond, 0, names(0, 0), 150*time.Millisecond)
	expect("two pods that share a batch", 150*time.Millisecond, 1, names(2, 4), 0)
	s.put(waits(4).Obj())
	expect("the last pod", time.Second, 1, names(4, 5), 0)
}

// TestAPodThatIsAloneIsNotPutOff shows that lifecycles that follow each other get their permits at once.
func TestAPodThatIsAloneIsNotPutOff(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.reconciler.batchInterval = time.Second
	s.rules("web", atMostUnavailable("one", "1"))
	s.put(web(0).Obj(), web(1).Obj())
	for i := range 10 {
		s.put(waits(i%2).Obj(), web(1-i%2).Obj())
		s.step(10 * time.Millisecond)
		if diff := cmp.Diff(names(i%2, i%2+1), s.permitted()); diff != "" {
			t.Fatalf("round %d: permitted pods differ (-want +got):\n%s", i, diff)
		}
	}
	s.put(waits(0).Obj(), waits(1).Obj())
	if result := s.step(10 * time.Millisecond); len(s.permitted()) > 0 || result.RequeueAfter != 990*time.Millisecond {
		t.Errorf("two pods after many: permitted, or put off for %s, want 990ms", result.RequeueAfter)
	}
}

// TestBatchesAfterARest shows when batches are due that are written as early as they may be.
func TestBatchesAfterARest(t *testing.T) {
	const quarter = time.Second / 4
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	play := func(b batches, now time.Time, isAtRest bool) (_ batches, waits []time.Duration) {
		for range 6 {
			wait := max(0, b.due(now, time.Second))
			waits = append(waits, wait)
			now = now.Add(wait)
			b = b.take(now, time.Second, isAtRest)
			isAtRest = false
		}
		return b, waits
	}
	spent, first := play(batches{}, start, true)
	_, unknown := play(batches{}, start, false)
	_, busy := play(spent, spent.last.Add(time.Hour), false)
	_, rested := play(spent, spent.last.Add(time.Second), true)
	_, soon := play(spent, spent.last.Add(quarter), true)
	burst := []time.Duration{0, quarter, quarter, quarter, time.Second, time.Second}
	slow := []time.Duration{0, time.Second, time.Second, time.Second, time.Second, time.Second}
	late := []time.Duration{3 * quarter, quarter, quarter, quarter, time.Second, time.Second}
	for name, tc := range map[string]struct{ got, want []time.Duration }{
		"no pod is off traffic":                                      {first, burst},
		"pods are off traffic, and no batch is known":                {unknown, slow},
		"pods are off traffic, an hour after the last batch":         {busy, slow},
		"no pod is off traffic, an interval after the last batch":    {rested, burst},
		"no pod is off traffic, less than an interval after a batch": {soon, late},
	} {
		if diff := cmp.Diff(tc.want, tc.got); diff != "" {
			t.Errorf("%s: the batches are due differently (-want +got):\n%s", name, diff)
		}
	}
	if wait := spent.due(spent.last, 0); wait > 0 || spent.isRecent(spent.last, 0) {
		t.Errorf("without an interval a batch waits for %s", wait)
	}
}

// TestOnlyRecordsAreGathered shows that a permit that needs no record does not wait for the next batch, and nor
// does a pod whose record is written.
func TestOnlyRecordsAreGathered(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.reconciler.batchInterval = time.Second
	s.rules("web", atMostUnavailable("two", "2"))
	s.rules("zone", inPostCheck(labelled("checked", "checked")))
	s.put(waits(0).Obj(), waits(1).Obj(), web(2).Obj(), web(3).Obj())
	s.refuse = func(pod string) error {
		if pod == "web-001" {
			return errConflict()
		}
		return nil
	}
	s.round()
	s.refuse = nil
	finished := builders.MakePod("web-002").Label("app", "web").Label("checked", "yes").UnreadyByGate(s.clock.Now())
	s.put(finished.Finished("a", "upgrade", s.clock.Now()).Obj())
	s.permitted()
	s.step(100 * time.Millisecond)
	if diff := cmp.Diff(names(1, 3), append([]string{}, s.permitted()...)); diff != "" {
		t.Errorf("permitted pods differ (-want +got):\n%s", diff)
	}
}

// TestPodTransitionRulesHaveBatchesOfTheirOwn shows that each PodTransitionRule has an interval of its own, and a
// deleted one leaves nothing in memory.
func TestPodTransitionRulesHaveBatchesOfTheirOwn(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.reconciler.batchInterval = time.Second
	of := func(i int, tier string) *builders.PodBuilder { return waits(i).Label("tier", tier) }
	for _, tier := range []string{"gold", "iron"} {
		s.rules(tier, atMostUnavailable("one", "1"))
		object := s.object(tier).DeepCopy()
		object.Spec.Selector.MatchLabels = map[string]string{"tier": tier}
		object.ResourceVersion, object.Generation = s.next(), object.Generation+1
		s.index.SetRule(object)
	}
	s.put(of(0, "gold").Obj())
	s.round()
	s.put(of(1, "iron").Obj())
	s.step(100 * time.Millisecond)
	if diff := cmp.Diff(names(0, 2), append([]string{}, s.permitted()...)); diff != "" {
		t.Errorf("permitted pods differ (-want +got):\n%s", diff)
	}
	for _, tier := range []string{"gold", "iron"} {
		s.index.RetireRule(ruleKey(s.object(tier)), s.clock.Now())
	}
	s.step(time.Second)
	if left := len(s.reconciler.state.namespaces); left > 0 {
		t.Errorf("%d deleted objects are remembered", left)
	}
}

// TestAFullRoundIsNotPutOff shows that while rounds have no time for every pod, or records no room, each
// round has its batch. A pod that had its turn in one that is put off might have none again.
func TestAFullRoundIsNotPutOff(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.reconciler.batchInterval = time.Second
	s.rules("web", atMostUnavailable("one", "1"))
	s.put(waits(0).Obj(), web(1).Obj())
	s.round()
	view := snapshot{Snapshot: evaluation.Snapshot{Snapshot: s.index.Snapshot("default", nil)}, state: s.reconciler.state.namespace("default")}
	evaluated := evaluation.Evaluation{Rulesets: map[string]*evaluation.Ruleset{"web": {}}}
	reserve := map[string][]appsv1alpha1.ReservedPod{"web": nil}
	for name, tc := range map[string]struct {
		plan permit.Plan
		want time.Duration
	}{
		"nothing to record":  {permit.Plan{}, 0},
		"one pod to record":  {permit.Plan{Reserve: reserve}, time.Second / burst},
		"no room for it":     {permit.Plan{Reserve: reserve, Denied: []permit.Denial{{Rule: rule.RuleID{Rule: "one"}}}}, time.Second / burst},
		"no time for others": {permit.Plan{Reserve: reserve, Missed: map[types.UID]int{"web-001-uid": 1}}, 0},
		"a full record":      {permit.Plan{Reserve: reserve, Denied: []permit.Denial{{}}}, 0},
	} {
		if got := s.reconciler.batchDue(view, evaluation.Outcome{Evaluation: evaluated, Allocation: evaluation.Allocation{Plan: tc.plan}}); got != tc.want {
			t.Errorf("%s: put off for %s, want %s", name, got, tc.want)
		}
	}
}
