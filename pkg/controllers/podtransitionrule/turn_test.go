package podtransitionrule

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/engine/evaluation"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/runtime/lanes"
)

// costly is a program each of whose evaluations takes time of the fake clock and as much CPU time.
// As an engine does it ends between two requests when a slice is over.
type costly struct {
	evaluation.Program
	harness   *harness
	cost      time.Duration
	evaluated []string
	before    func()
}

func (c *costly) Evaluate(
	ctx context.Context, stage appsv1alpha1.TransitionStage, env rule.Environment, requests []rule.Request,
) (rule.Result, error) {
	clock := c.harness.clock
	began := clock.Now()
	result := rule.Result{Verdicts: map[string]rule.Verdict{}}
	for _, request := range requests {
		if clock.Since(began) >= evaluation.SlowSlice || ctx.Err() != nil {
			result.Verdicts[request.Key()] = rule.Verdict{Code: rule.CodeNotReached}
			continue
		}
		if c.before != nil {
			c.before()
		}
		clock.SetTime(clock.Now().Add(c.cost))
		c.evaluated = append(c.evaluated, request.Pod.Name)
		one, err := c.Program.Evaluate(context.WithoutCancel(ctx), stage, env, []rule.Request{request})
		if err != nil {
			return rule.Result{}, err
		}
		result.Verdicts[request.Key()] = one.Verdicts[request.Key()]
		result.CPUTime += c.cost
	}
	return result, nil
}

// costs makes the rules of an object costly.
func (s *harness) costs(object string, cost time.Duration) []*costly {
	s.t.Helper()
	all := make([]*costly, len(s.object(object).Spec.Rules))
	for i := range all {
		all[i] = &costly{harness: s, cost: cost}
	}
	s.intercept(object, func(i int, program evaluation.Program) evaluation.Program {
		all[i].Program = program
		return all[i]
	})
	return all
}

// TestARoundGivesWayAndEveryPodHasItsTurn shows that a round ends within its budget, that only pods
// for which all rules were evaluated are permitted, and that each pod is in the end, although no
// verdict can be remembered and one round has time for few pods.
func TestARoundGivesWayAndEveryPodHasItsTurn(t *testing.T) {
	for name, modules := range map[string][]string{
		"rules that read the time":        {"allow if input.now > 0", "allow if input.now > 1"},
		"rules that read other pods":      {"allow if count(input.pods) > 0", "allow if count(input.pods) > 1"},
		"rules that read the pod":         {"allow if input.pod.name", "allow if input.pod.labels.app"},
		"one that never lets a pod pass":  {`allow if input.pod.name == "web-039"`, "allow if input.now > 0"},
		"one that is not enforced beside": {"allow if input.now > 0", "# DryRun\nallow if input.now > 1"},
	} {
		t.Run(name, func(t *testing.T) {
			const pods, cost = 40, 60 * time.Millisecond
			s := newHarness(t, opa.Options{})
			var rules []appsv1alpha1.TransitionRule
			for i, module := range modules {
				rule := inline(fmt.Sprint("rule-", i), module)
				if strings.Contains(module, "DryRun") {
					rule = enforced(rule, appsv1alpha1.EnforcementDryRun)
				}
				rules = append(rules, rule)
			}
			s.rules("web", rules...)
			for i := range pods {
				s.put(waits(i).Obj())
			}
			costly := s.costs("web", cost)
			want, permitted := names(0, pods), []string{}
			if strings.Contains(name, "never") {
				want = names(39, 40)
			}
			for rounds := 0; !slices.Equal(permitted, want); rounds++ {
				began := s.clock.Now()
				result := s.round()
				if took := s.clock.Since(began); took > evaluation.DefaultBudget+cost {
					t.Fatalf("round %d took %s", rounds, took)
				}
				permitted = append(permitted, s.permitted()...)
				slices.Sort(permitted)
				if len(permitted) < len(want) && (result.RequeueAfter <= 0 || result.RequeueAfter > evaluation.RetryStale) {
					t.Fatalf("round %d comes back after %s", rounds, result.RequeueAfter)
				}
				if rounds > 4*pods {
					t.Fatalf("after %d rounds %v are permitted", rounds, permitted)
				}
				s.clock.SetTime(s.clock.Now().Add(evaluation.RetryStale))
			}
			for _, one := range costly {
				slices.Sort(one.evaluated)
				if got := slices.Compact(one.evaluated); len(got) != pods && !strings.Contains(name, "not enforced") {
					t.Errorf("%d pods were evaluated, want %d", len(got), pods)
				}
			}
			if got := read(t, s.reconciler.metrics.rounds.WithLabelValues(string(evaluation.CauseBudget))); got == 0 {
				t.Error("no round is counted as one that gave way")
			}
		})
	}
}

// TestAPodThatWasNotReachedHasThatReason shows the reason of a pod that no round has reached yet.
func TestAPodThatWasNotReachedHasThatReason(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.rules("web", inline("mine", "allow if input.pod.name == \"none\""))
	s.put(waits(0).Obj(), waits(1).Obj())
	s.costs("web", evaluation.DefaultBudget)
	s.round()
	blocked := s.object("web").Status.Blocked
	if len(blocked) != 2 || blocked[0].Reason != string(rule.CodeNotAllowed) || blocked[1].Reason != string(rule.CodeNotReached) || !strings.HasPrefix(blocked[1].Message, "the rules of the namespace used up the time") {
		t.Errorf("blocked are %+v", blocked)
	}
}

// TestANamespaceThatIsGoneEndsItsRound shows that a round whose rules are deleted evaluates and
// writes nothing more.
func TestANamespaceThatIsGoneEndsItsRound(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.rules("web", inline("mine", "allow if input.pod.name"))
	for i := range 20 {
		s.put(waits(i).Obj())
	}
	one := s.costs("web", 100*time.Millisecond)[0]
	key := ruleKey(s.object("web"))
	one.before = func() { s.index.DeleteRule(key) }
	written := len(s.statuses)
	if result := s.round(); result.RequeueAfter != 0 {
		t.Errorf("comes back after %s", result.RequeueAfter)
	}
	if len(one.evaluated) > int(evaluation.SlowSlice/one.cost)+1 {
		t.Errorf("%d pods were evaluated", len(one.evaluated))
	}
	if len(s.permitted()) > 0 || len(s.statuses) > written {
		t.Error("something was written")
	}
	if got := read(t, s.reconciler.metrics.rounds.WithLabelValues(string(evaluation.CauseGone))); got != 1 {
		t.Errorf("%v rounds are counted as ended", got)
	}
}

// TestASlowNamespaceWaitsForItsPlace shows that a namespace that has used its share waits while the
// places of the slow lane are taken, is queued when one is free, and goes on then.
func TestASlowNamespaceWaitsForItsPlace(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.rules("web", inline("mine", "allow if input.pod.name"))
	one := s.costs("web", 90*time.Millisecond)[0]
	s.round() // compiles the module
	for i := range 10 {
		s.put(waits(i).Obj())
	}
	l := s.reconciler.lanes
	var others []string
	for i := 0; ; i++ {
		other := fmt.Sprint("other-", i)
		l.Enter(other, s.clock.Now())
		if lane, _ := l.GoOn(other, time.Minute, s.clock.Now()); lane != lanes.Slow {
			break
		}
		others = append(others, other)
	}
	s.round()
	first := len(one.evaluated)
	if first == 0 || first > 1+int(evaluation.SlowSlice/one.cost) {
		t.Errorf("%d pods were evaluated before the namespace gave way", first)
	}
	news := s.news
	if result := s.round(); result.RequeueAfter != 0 || len(one.evaluated) != first {
		t.Errorf("parked: comes back after %s, %d evaluations", result.RequeueAfter, len(one.evaluated)-first)
	}
	s.reconciler.end(&turn{Turn: evaluation.NewTurn(evaluation.TurnOptions{Namespace: others[0], Lanes: l, Clock: s.clock})})
	if s.news != news+1 {
		t.Fatalf("queued %d times, want once", s.news-news)
	}
	s.step(time.Second)
	if len(one.evaluated) != 10 {
		t.Errorf("%d pods were evaluated in all", len(one.evaluated))
	}
	if got := read(t, s.reconciler.metrics.rounds.WithLabelValues(string(evaluation.CauseShare))); got != 1 {
		t.Errorf("%v rounds are counted as over their share", got)
	}
}

// TestCompilingTakesTimeOfTheRound shows that modules that are slow to compile are compiled over
// several rounds, withhold meanwhile, and keep their status.
func TestCompilingTakesTimeOfTheRound(t *testing.T) {
	const modules = 10
	compiled := 0
	s := newHarness(t, opa.Options{})
	s.engine.compiling = func() {
		compiled++
		s.clock.SetTime(s.clock.Now().Add(400 * time.Millisecond))
	}
	var rules []appsv1alpha1.TransitionRule
	for i := range modules {
		rules = append(rules, inline(fmt.Sprint("rule-", i), fmt.Sprintf("allow if input.pod.name != \"%d\"", i)))
	}
	s.rules("web", rules...)
	object := s.object("web").DeepCopy()
	object.ResourceVersion = s.next()
	object.Status.ObservedGeneration = object.Generation
	object.Status.Rules = []appsv1alpha1.RuleStatus{{Name: "rule-9", Enforcement: appsv1alpha1.EnforcementEnforce, Generation: object.Generation, Evaluated: 7}}
	s.statuses = append(s.statuses, object)
	s.index.SetRule(object)
	s.put(waits(0).Obj())
	for rounds := 0; len(s.permitted()) == 0; rounds++ {
		before := compiled
		result := s.round()
		if got := compiled - before; got > 3 {
			t.Errorf("round %d compiled %d modules", rounds, got)
		}
		if compiled < modules {
			if blocked := s.blocked(); !strings.HasPrefix(blocked, "NotReached: ") || result.RequeueAfter > evaluation.RetryStale {
				t.Errorf("round %d: the pod waits for %q, comes back after %s", rounds, blocked, result.RequeueAfter)
			}
			if condition := s.object("web").Status.Conditions[2]; condition.Status != "False" {
				t.Errorf("round %d: condition %+v", rounds, condition)
			}
		}
		if rounds > modules {
			t.Fatal("the pod is never permitted")
		}
		s.clock.SetTime(s.clock.Now().Add(statusInterval))
	}
	if compiled != modules {
		t.Errorf("compiled %d modules, want %d", compiled, modules)
	}
	s.step(statusInterval)
	for _, rule := range s.object("web").Status.Rules {
		if rule.Name == "rule-9" && rule.Evaluated < 7 {
			t.Errorf("its count began again: %d", rule.Evaluated)
		}
	}
}

// TestAQuarantineCanBeLifted shows that each new value of the annotation ends a quarantine once,
// also over a restart.
func TestAQuarantineCanBeLifted(t *testing.T) {
	s := newHarness(t, opa.Options{CustomTimeout: 50 * time.Millisecond})
	s.rules("web", inline("mine", loops))
	for i := range 4 {
		s.put(waits(i).Obj())
	}
	lift := func(s *harness, value string) {
		object := s.object("web").DeepCopy()
		object.ResourceVersion = s.next()
		object.Annotations = map[string]string{appsv1alpha1.LiftQuarantineAnnotationKey: value}
		s.statuses = append(s.statuses, object)
		s.index.SetRule(object)
	}
	s.untilQuarantined()
	news := s.news
	lift(s, "2026-01-01")
	if s.news != news+1 {
		t.Errorf("the annotation queued the namespace %d times, want once", s.news-news)
	}
	if got := s.quarantineOnceReached(); got != nil && got.Lift != "2026-01-01" {
		t.Errorf("not lifted: %+v", got)
	}
	s.untilQuarantined()
	restarted := restart(t, s)
	restarted.engine.Engine = s.engine.Engine // the time of its modules
	if got := restarted.quarantineOnceReached(); got == nil || got.Lift != "2026-01-01" {
		t.Fatalf("a value that has ended a quarantine ends another quarantine after a restart: %+v", got)
	}
	lift(restarted, "2026-01-02")
	if got := restarted.quarantineOnceReached(); got != nil && got.Lift != "2026-01-02" {
		t.Errorf("not lifted after a restart: %+v", got)
	}
	if diff := cmp.Diff([]string(nil), restarted.permitted()); diff != "" {
		t.Errorf("permitted (-want +got):\n%s", diff)
	}
}
