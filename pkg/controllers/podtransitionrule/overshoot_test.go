package podtransitionrule

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/podops-dev/podops/pkg/engine/opa"
)

// TestNoPermitOvershoots lets replicas with views of any age act at once, loses, delays
// and repeats their requests, and kills them at any write. Pods become unavailable
// through permits only. In every schedule, a permit is only ever accepted while enough
// pods are left, counted on the stored objects.
func TestNoPermitOvershoots(t *testing.T) {
	e := newTestEngine(t)
	met := &seen{metrics: newMetrics(t)}
	rapid.Check(t, func(t *rapid.T) {
		w := drawSimulation(t, e, met, true)
		defer w.close()
		t.Repeat(w.quietActions())
		w.settle(t)
	})
	met.check(t)
}

// TestNoPermitOvershootsAmongOtherChanges is the same while pods fail and vanish,
// workloads are scaled, pods move from rule to rule, and rules are edited. See
// favourable for the faults that no permit causes.
func TestNoPermitOvershootsAmongOtherChanges(t *testing.T) {
	e := newTestEngine(t)
	met := &seen{metrics: newMetrics(t)}
	rapid.Check(t, func(t *rapid.T) {
		w := drawSimulation(t, e, met, false)
		defer w.close()
		actions := w.quietActions()
		for name, action := range map[string]func(*rapid.T){
			"move": w.Move, "leave": w.Leave, "skip": w.Skip, "sicken": w.Sicken, "lose": w.Lose,
			"scale": w.Scale, "rule": w.Rule, "watch owners": w.WatchOwners,
		} {
			actions[name] = action
		}
		t.Repeat(actions)
		w.settle(t)
	})
	met.check(t)
}

func newTestEngine(t testing.TB) *opa.Engine {
	t.Helper()
	e, err := opa.New(opa.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// drawSimulation is a simulation of two workloads whose pods all serve, and of two or three
// replicas of the manager.
func drawSimulation(t *rapid.T, e *opa.Engine, met *seen, quiet bool) *simulation {
	w := newSimulation(t, e, met, quiet)
	w.batchInterval = rapid.SampledFrom([]time.Duration{0, statusInterval}).Draw(t, "batch interval")
	w.addOwner("web", rapid.IntRange(2, 5).Draw(t, "web"))
	if db := rapid.IntRange(1, 3).Draw(t, "db"); quiet && rapid.Bool().Draw(t, "db is unknown") {
		w.addUnknown("db", db)
	} else {
		w.addOwner("db", db)
	}
	for _, name := range []string{"x", "y", "z"}[:rapid.IntRange(1, 3).Draw(t, "objects")] {
		w.server.putRule(name, drawSpec(t, quiet))
	}
	w.born = len(w.server.ruleHistory)
	if rapid.Bool().Draw(t, "all begin") {
		w.BeginAll(t)
	}
	for range rapid.IntRange(2, 3).Draw(t, "replicas") {
		w.replicas = append(w.replicas, newReplica(w, len(w.server.podHistory), len(w.server.ruleHistory)))
	}
	return w
}

// quietActions are the actions that make pods unavailable through permits only.
// Some have two names, so that they are drawn more often.
func (w *simulation) quietActions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"":      w.Pass,
		"surge": w.Surge, "replace rule": w.ReplaceRule, "begin": w.Begin, "begin all": w.BeginAll, "finish": w.Finish, "replace": w.Replace, "recreate": w.Recreate,
		"others": w.Others, "cycle": w.Cycle, "beat": w.Beat, "mark": w.Mark,
		"watch pods": w.WatchPods, "watch rules": w.WatchRules, "watch all": w.WatchAll, "relist": w.Relist,
		"round": w.Round, "fresh round": w.FreshRound, "step": w.Step, "step again": w.Step,
		"late": w.Late, "late again": w.Late, "race": w.Race, "race again": w.Race,
	}
}

// check fails if the schedules came across too little to prove anything.
func (s *seen) check(t *testing.T) {
	t.Helper()
	t.Logf("%+v", *s)
	if s.simulations < 100 || t.Failed() {
		return
	}
	for what, count := range map[string]int{
		"permit of an available pod": s.permits, "conflict over a record": s.conflicts, "view that did not reach": s.stale,
		"permit of a workload with more pods than it wants": s.surged, "late write that was accepted": s.late, "process that was killed": s.killed, "failed round": s.failed,
	} {
		if count == 0 {
			t.Errorf("no schedule came across a %s", what)
		}
	}
}
