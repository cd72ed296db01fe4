package podtransitionrule

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/engine/opa"
)

// loops does not answer within any deadline.
const loops = `allow if {
	some i in numbers.range(1, 10000)
	some j in numbers.range(1, 10000)
	i * j < 0
}`

// TestARuleThatIsTooExpensive shows that its pods wait with the reason, the rule is not evaluated
// after three misses, and neither harms the other rules.
func TestARuleThatIsTooExpensive(t *testing.T) {
	s := newHarness(t, opa.Options{CustomTimeout: 50 * time.Millisecond, RoundBudget: time.Minute})
	mine := inline("mine", loops)
	mine.Conditions = []string{"delete"}
	s.rules("web", mine)
	s.put(waits(5).Obj())
	for i := range 4 {
		s.put(web(i).Waiting("a", "delete", s.clock.Now().Add(time.Duration(i)*time.Second)).Obj())
	}
	s.round()
	if diff := cmp.Diff(names(5, 6), s.permitted()); diff != "" {
		t.Errorf("permitted pods differ (-want +got):\n%s", diff)
	}
	s.untilQuarantined()
	events := strings.Join(s.recorded(), "\n")
	if !strings.Contains(events, EventQuarantined) || !strings.Contains(events, "rule mine is not evaluated any more") {
		t.Errorf("no event about the quarantine of the rule:\n%s", events)
	}
	status := s.object("web").Status
	if got := s.blocked(); !strings.HasPrefix(got, "PolicyTooExpensive: ") || status.Rules[0].Quarantined == nil {
		t.Errorf("then it waits for %q, quarantine %+v", got, status.Rules[0].Quarantined)
	}
	condition, limit := status.Conditions[2], "the last time because it used up its time of 50ms"
	if condition.Type != "Stalled" || condition.Reason != "PolicyTooExpensive" || condition.Status != "True" || !strings.Contains(condition.Message, limit) {
		t.Errorf("condition %+v, want one with %q", condition, limit)
	}

	restarted := restart(t, s)
	if restarted.quarantineOnceReached() == nil {
		t.Errorf("after a restart it waits for %q", restarted.blocked())
	}
	mine.Rego.Module = "package rule\n\nallow := true"
	restarted.rules("web", mine)
	if got := restarted.quarantineOnceReached(); got != nil {
		t.Errorf("the quarantine goes on after the edit: %+v", got)
	}
	if diff := cmp.Diff(names(0, 4), restarted.permitted()); diff != "" {
		t.Errorf("permitted after the edit (-want +got):\n%s", diff)
	}
}

// untilQuarantined makes rounds until the first rule is under quarantine. That may take some: an
// evaluation that gets no CPU time on a busy machine does not count.
func (s *harness) untilQuarantined() {
	s.t.Helper()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	// An evaluation that was cancelled needs CPU time to end, and the next one waits for it.
	for range 6000 {
		s.step(2 * statusInterval)
		if strings.HasPrefix(s.blocked(), "PolicyTooExpensive: ") {
			return
		}
		<-poll.C
	}
	s.t.Fatalf("the rule is not under quarantine: %s", s.blocked())
}

// quarantineOnceReached makes rounds until one has reached the first rule, and returns its quarantine. A round
// on a busy machine may have no time for it, and may also put the rule under quarantine again.
func (s *harness) quarantineOnceReached() *appsv1alpha1.Quarantine {
	s.t.Helper()
	for range 100 {
		if s.step(2 * statusInterval); !strings.HasPrefix(s.blocked(), "NotReached: ") {
			return s.object("web").Status.Rules[0].Quarantined
		}
	}
	s.t.Fatalf("no round reaches the rule: %s", s.blocked())
	return nil
}

// restart is another process that reads the objects that the previous process stored.
func restart(t *testing.T, before *harness) *harness {
	t.Helper()
	s := newHarness(t, opa.Options{})
	s.clock.SetTime(before.clock.Now())
	s.version = before.version
	s.index.SetRule(before.object("web"))
	for _, pod := range before.pods {
		s.put(pod)
	}
	return s
}

func TestMetricsOfRules(t *testing.T) {
	m := newMetrics(t)
	id := rule.RuleID{Rule: "mine"}
	id.Ruleset.Namespace, id.Ruleset.Name = "shop", "web"
	m.counted(id, "DryRun", 5, 0, 2)
	m.counted(id, "DryRun", 1, 0, 0)
	m.late(id, 3)
	m.quarantine(id, true)
	if got := read(t, m.requests.WithLabelValues("shop", "web", "mine", "DryRun", "evaluated")); got != 6 {
		t.Errorf("evaluated %v, want 6", got)
	}
	if got := read(t, m.requests.WithLabelValues("shop", "web", "mine", "DryRun", "would_withhold")); got != 2 {
		t.Errorf("would withhold %v, want 2", got)
	}
	if got := read(t, m.timeouts.WithLabelValues("shop", "web", "mine")); got != 3 {
		t.Errorf("timeouts %v, want 3", got)
	}
	if got := read(t, m.quarantined.WithLabelValues("shop", "web", "mine")); got != 1 {
		t.Errorf("quarantined %v, want 1", got)
	}
	m.forget(id.Ruleset)
	if got := read(t, m.timeouts.WithLabelValues("shop", "web", "mine")); got != 0 {
		t.Errorf("timeouts are %v after the rule is gone", got)
	}
}

func read(t *testing.T, metric interface{ Write(*dto.Metric) error }) float64 {
	t.Helper()
	var out dto.Metric
	if err := metric.Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.GetCounter().GetValue() + out.GetGauge().GetValue()
}
