package podtransitionrule

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/engine/evaluation"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask/dispatch"
	"github.com/podops-dev/podops/test/builders"
)

func names(from, to int) []string {
	all := []string{}
	for i := from; i < to; i++ {
		all = append(all, web(i).Obj().Name)
	}
	return all
}

// TestRound shows which pods one round permits.
func TestRound(t *testing.T) {
	for name, tc := range map[string]struct {
		rules   map[string][]appsv1alpha1.TransitionRule
		options opa.Options
		want    []string
	}{
		"no rules": {want: names(0, 4)},
		"one of four may go, the oldest": {
			rules: map[string][]appsv1alpha1.TransitionRule{"web": {atMostUnavailable("one", "1")}}, want: names(0, 1),
		},
		"a slot goes to a pod that passes everything else": {
			rules: map[string][]appsv1alpha1.TransitionRule{"web": {atMostUnavailable("one", "1")}, "zone": {labelled("approved", "third")}}, want: names(2, 3),
		},
		"two objects take the same pod": {
			rules: map[string][]appsv1alpha1.TransitionRule{"a": {atMostUnavailable("one", "1")}, "b": {atMostUnavailable("one", "1")}}, want: names(0, 1),
		},
		"a disabled rule": {
			rules: map[string][]appsv1alpha1.TransitionRule{"web": {func() appsv1alpha1.TransitionRule {
				rule := labelled("approved", "third")
				rule.Disabled = true
				return rule
			}()}}, want: names(0, 4),
		},
		"rules that are not enforced": {
			rules: map[string][]appsv1alpha1.TransitionRule{"web": {
				enforced(labelled("approved", "third"), appsv1alpha1.EnforcementWarn), enforced(atMostUnavailable("one", "1"), appsv1alpha1.EnforcementDryRun),
			}}, want: names(0, 4),
		},
		"a rule of the other stage": {rules: map[string][]appsv1alpha1.TransitionRule{"web": {inPostCheck(labelled("approved", "none"))}}, want: names(0, 4)},
		"rules that do not compile and are not enforced": {
			rules: map[string][]appsv1alpha1.TransitionRule{"web": {
				{Name: "nothing", Enforcement: appsv1alpha1.EnforcementWarn}, {Name: "more", Enforcement: appsv1alpha1.EnforcementDryRun},
			}}, want: names(0, 4),
		},
		"a rule that cannot be evaluated and is not enforced": {
			rules:   map[string][]appsv1alpha1.TransitionRule{"web": {enforced(labelled("approved", "third"), appsv1alpha1.EnforcementDryRun)}},
			options: opa.Options{Timeout: 1}, want: names(0, 4),
		},
		"a rule that does not compile, of PostCheck": {
			rules: map[string][]appsv1alpha1.TransitionRule{"web": {{Name: "nothing", Stage: appsv1alpha1.StagePostCheck}}}, want: names(0, 4),
		},
		"a rule that does not compile, of an unknown stage": {
			rules: map[string][]appsv1alpha1.TransitionRule{"web": {{Name: "nothing", Stage: "Later"}}}, want: names(0, 0),
		},
		"a rule that does not compile, of a stage by its old name": {
			rules: map[string][]appsv1alpha1.TransitionRule{"web": {{Name: "nothing", Stage: "PreTrafficOff"}}}, want: names(0, 0),
		},
		"a rule that does not compile": {rules: map[string][]appsv1alpha1.TransitionRule{"web": {{Name: "nothing"}}}, want: names(0, 0)},
		"a rule of a kind that is not evaluated": {
			rules: map[string][]appsv1alpha1.TransitionRule{"web": {{Name: "approval", Webhook: &appsv1alpha1.TransitionRuleWebhook{}}}}, want: names(0, 0),
		},
		"a rule that cannot be evaluated": {
			rules: map[string][]appsv1alpha1.TransitionRule{"web": {labelled("approved", "third")}}, options: opa.Options{Timeout: 1}, want: names(0, 0),
		},
		"a budget that cannot be evaluated": {
			rules: map[string][]appsv1alpha1.TransitionRule{"web": {atMostUnavailable("one", "1")}}, options: opa.Options{Timeout: 1}, want: names(0, 0),
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newHarness(t, tc.options)
			s.put(waits(0).Obj(), waits(1).Obj(), waits(2).Label("third", "yes").Obj(), waits(3).Obj())
			for object, rules := range tc.rules {
				s.rules(object, rules...)
			}
			s.round()
			if diff := cmp.Diff(tc.want, append([]string{}, s.permitted()...)); diff != "" {
				t.Errorf("permitted pods differ (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRoundBeforeThePodsAreListed decides nothing: every count would be too low.
func TestRoundBeforeThePodsAreListed(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.must(s.store.Replace([]any{waits(0).Obj()}, ""))
	if result := s.round(); result.RequeueAfter != evaluation.RetryStale || len(s.permitted()) > 0 {
		t.Errorf("comes back after %s, permitted %v", result.RequeueAfter, s.stamped)
	}
}

// TestPostCheck shows that a pod that was operated on comes back when its PostCheck rules pass,
// with any verdicts of the PreCheck rules.
func TestPostCheck(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.rules("web", inPostCheck(labelled("checked", "checked")), labelled("approved", "none"))
	finished := builders.MakePod("web-000").Label("app", "web").UnreadyByGate(builders.Epoch).Finished("a", "upgrade", builders.Epoch)
	s.put(finished.Obj())
	s.round()
	if got := s.permitted(); len(got) > 0 {
		t.Fatalf("permitted %v, which is not checked", got)
	}
	s.put(finished.Label("checked", "yes").Obj())
	s.round()
	if diff := cmp.Diff(names(0, 1), s.permitted()); diff != "" {
		t.Errorf("permitted pods differ (-want +got):\n%s", diff)
	}
	var labels []string
	for key := range s.pods["web-000"].Labels {
		labels = append(labels, key)
	}
	slices.Sort(labels)
	want := []string{"app", "checked", appsv1alpha1.ControlLabelKey, appsv1alpha1.ServiceAvailableLabelKey}
	if diff := cmp.Diff(want, labels); diff != "" {
		t.Errorf("labels afterwards differ (-want +got):\n%s", diff)
	}
}

// TestAnEvaluationThatFailedIsRepeated shows that the rule is evaluated again although nothing changes.
func TestAnEvaluationThatFailedIsRepeated(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.rules("web", labelled("approved", "app"))
	s.put(waits(0).Label("app", "web").Obj())
	s.rules("web", labelled("approved", "approved"))
	s.put(waits(0).Label("approved", "yes").Obj())
	counting := s.count("web")
	counting.fail = errors.New("the machine is busy")
	if result := s.round(); result.RequeueAfter != evaluation.RetryFailed {
		t.Errorf("comes back after %s, want %s", result.RequeueAfter, evaluation.RetryFailed)
	}
	counting.fail = nil
	s.step(evaluation.RetryFailed)
	if diff := cmp.Diff(names(0, 1), s.permitted()); diff != "" {
		t.Errorf("permitted pods differ (-want +got):\n%s", diff)
	}
	if condition := s.object("web").Status.Conditions[0]; condition.Reason != appsv1alpha1.ReasonEvaluated {
		t.Errorf("the condition still has the message %s", condition.Message)
	}
}

// counter is a program that counts the requests for which it is evaluated.
type counter struct {
	evaluation.Program
	evaluated []string
	calls     int
	fail      error
}

func (c *counter) Evaluate(
	ctx context.Context, stage appsv1alpha1.TransitionStage, env rule.Environment, requests []rule.Request,
) (rule.Result, error) {
	c.calls++
	for _, request := range requests {
		c.evaluated = append(c.evaluated, request.Pod.Name)
	}
	if c.fail != nil {
		return rule.Result{}, c.fail
	}
	return c.Program.Evaluate(ctx, stage, env, requests)
}

// count puts a counter before the one rule of an object.
func (s *harness) count(object string) *counter {
	s.t.Helper()
	c := &counter{}
	s.intercept(object, func(_ int, program evaluation.Program) evaluation.Program { c.Program = program; return c })
	return c
}

func (c *counter) since() []string {
	evaluated := append([]string{}, c.evaluated...)
	slices.Sort(evaluated)
	c.evaluated = nil
	return evaluated
}

// TestAnUnchangedRequestIsNotEvaluatedAgain shows that a round evaluates only the requests whose pods
// have changed in fields that rules can see.
func TestAnUnchangedRequestIsNotEvaluatedAgain(t *testing.T) {
	for name, rule := range map[string]appsv1alpha1.TransitionRule{
		"labelCheck": labelled("approved", "approved"), "availablePolicy": atMostUnavailable("none", "1"),
	} {
		t.Run(name, func(t *testing.T) {
			s := newHarness(t, opa.Options{})
			s.rules("web", rule)
			counting := s.count("web")
			step := func(what string, change func(), want []string) {
				t.Helper()
				change()
				s.step(time.Second)
				if diff := cmp.Diff(want, counting.since()); diff != "" {
					t.Errorf("%s: evaluated for (-want +got):\n%s", what, diff)
				}
			}
			// web-009 stays unavailable, so that no pod ever passes.
			s.put(web(9).Unready(builders.Epoch).Obj())
			step("all are new", func() { s.put(waits(0).Obj(), waits(1).Obj(), waits(2).Obj()) }, names(0, 3))
			step("nothing changes", func() {}, []string{})
			step("a heartbeat", func() { s.put(waits(0).Annotation("example.kusionstack.io/beat", "1").Obj()) }, []string{})
			step("a label", func() { s.put(waits(1).Label("zone", "b").Obj()) }, names(1, 2))
			step("another request of the same pod", func() { s.put(waits(2).Waiting("b", "delete", builders.Epoch).Obj()) }, append(names(2, 3), names(2, 3)...))
			step("one leaves", func() { s.put(web(2).Obj()) }, []string{})
			step("and comes back", func() { s.put(waits(2).Obj()) }, names(2, 3))
			step("all leave", func() { s.put(web(0).Obj(), web(1).Obj(), web(2).Obj()) }, []string{})
		})
	}
}

// TestNoStateIsLeftOfDeletedRules shows that no store of a Reconciler grows with deleted objects, not even with
// the calls that were under way and never have a result.
func TestNoStateIsLeftOfDeletedRules(t *testing.T) {
	s := newHarness(t, opa.Options{})
	for i := range 5 {
		name := "web-" + strconv.Itoa(i)
		s.rules(name, webhookRule("posted", false), webhookRule("polled", true))
		s.put(waits(i).Obj())
		s.round()
		for _, call := range s.expectCalls("of two rules", "POST "+waits(i).Obj().Name, "POST "+waits(i).Obj().Name) {
			if call.Rule.Rule == "polled" {
				s.deliver(dispatch.Result{Call: call, Post: &webhooktask.PostAnswer{Success: true, Poll: true, TaskID: "t"}})
			}
		}
		s.round()
		s.expectCalls("a poll is under way", "GET t")
		s.rules(name, labelled("approved", "approved"), atMostUnavailable("one", "1"))
		s.put(waits(i).Obj())
		s.round()
		requiring := s.object(name).DeepCopy()
		requiring.ResourceVersion, requiring.Status.Permits = s.next(), &appsv1alpha1.PermitRecord{ViewResourceVersion: "99999999"}
		s.index.SetRule(requiring)
		s.round()
		s.index.DeleteRule(ruleKey(requiring))
		s.must(s.store.Delete(s.pods[waits(i).Obj().Name]))
		s.round()
	}
	for store, size := range stores(reflect.ValueOf(s.reconciler).Elem(), "Reconciler") {
		if size > 0 {
			t.Errorf("%s has %d entries left", store, size)
		}
	}
	if got := s.index.Namespaces(); len(got) > 0 {
		t.Errorf("facts of %v are left", got)
	}
}

// isOfRounds reports whether a package keeps state of rounds.
func isOfRounds(path string) bool {
	for _, name := range []string{"controllers/podtransitionrule", "evaluation", "webhooktask/dispatch"} {
		if strings.HasSuffix(path, "/pkg/"+name) {
			return true
		}
	}
	return false
}

// stores returns the number of entries of the maps and lists of a value, and of the structs of the
// packages of rounds that it points to.
func stores(of reflect.Value, name string) map[string]int {
	sizes := map[string]int{}
	for i := range of.NumField() {
		field, path := of.Field(i), name+"."+of.Type().Field(i).Name
		switch {
		case field.Kind() == reflect.Map, field.Kind() == reflect.Slice:
			sizes[path] = field.Len()
		case field.Kind() == reflect.Pointer && !field.IsNil() && field.Elem().Kind() == reflect.Struct && isOfRounds(field.Elem().Type().PkgPath()):
			maps.Copy(sizes, stores(field.Elem(), path))
		}
	}
	return sizes
}

// TestAPodThatCannotBeWritten delays no other pod, and the round is repeated.
func TestAPodThatCannotBeWritten(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.rules("web", atMostUnavailable("all", "100%"))
	for i := range 40 {
		s.put(waits(i).Obj())
	}
	denied := errors.New("denied by an admission policy")
	s.refuse = func(pod string) error {
		switch pod {
		case "web-003":
			return denied
		case "web-005":
			return fmt.Errorf("patching: %w", errConflict())
		}
		return nil
	}
	_, err := s.reconciler.Reconcile(t.Context(), "default")
	if !errors.Is(err, denied) {
		t.Errorf("got %v, want that it was denied", err)
	}
	want := slices.DeleteFunc(names(0, 40), func(name string) bool { return name == "web-003" || name == "web-005" })
	if diff := cmp.Diff(want, s.permitted()); diff != "" {
		t.Errorf("permitted pods differ (-want +got):\n%s", diff)
	}
}

// TestAConflictIsNoError shows that the watch brings the pod, and with it the next round. Should it
// bring nothing, the next round comes by itself.
func TestAConflictIsNoError(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.put(waits(0).Obj())
	s.refuse = func(string) error { return fmt.Errorf("patching: %w", errConflict()) }
	if result := s.round(); result.RequeueAfter != retryConflict {
		t.Errorf("comes back after %s, want %s", result.RequeueAfter, retryConflict)
	}
}

// TestARecordThatRequiresAViewThatNeverComes stops the namespace, but not for ever; and it is
// replaced, so that it stops no other pod.
func TestARecordThatRequiresAViewThatNeverComes(t *testing.T) {
	for name, record := range map[string]appsv1alpha1.PermitRecord{
		"a view from the future":    {ViewResourceVersion: "999999999"},
		"a view that is no version": {ViewResourceVersion: "soon"},
		"a pod from the future":     {Reserved: []appsv1alpha1.ReservedPod{{UID: "web-001-uid", Name: "web-001", ResourceVersion: "999999999"}}},
		"a pod without a version":   {Reserved: []appsv1alpha1.ReservedPod{{UID: "unknown"}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newHarness(t, opa.Options{})
			s.rules("web", atMostUnavailable("one", "1"))
			s.put(waits(0).Obj(), waits(1).Obj())
			object := s.object("web").DeepCopy()
			object.ResourceVersion, object.Status.Permits = s.next(), &record
			s.index.SetRule(object)
			for _, d := range []time.Duration{0, time.Minute, viewTimeout - time.Minute - time.Nanosecond} {
				if result := s.step(d); result.RequeueAfter != evaluation.RetryStale || len(s.written()) > 0 || len(s.permitted()) > 0 {
					t.Fatalf("%s later it goes on: comes back after %s", d, result.RequeueAfter)
				}
			}
			s.step(time.Nanosecond)
			if diff := cmp.Diff(names(0, 1), s.permitted()); diff != "" {
				t.Errorf("permitted pods differ (-want +got):\n%s", diff)
			}
			next := s.object("web").Status.Permits
			if fresh := s.index.Snapshot("default", nil).ResourceVersion; !reached(fresh, next) {
				t.Errorf("at %s the record still requires %+v", fresh, next)
			}
		})
	}
}

func reached(version string, record *appsv1alpha1.PermitRecord) bool {
	seen, err := strconv.Atoi(version)
	pendingView, bad := strconv.Atoi("0" + record.ViewResourceVersion)
	return err == nil && bad == nil && pendingView <= seen
}

// TestManyNamespacesAtOnce is for the race detector: rounds of several namespaces, the
// watches of all of them, and permits in parallel.
func TestManyNamespacesAtOnce(t *testing.T) {
	s := newHarness(t, opa.Options{})
	const namespaces, pods = 4, 20
	var group sync.WaitGroup
	for n := range namespaces {
		name := fmt.Sprintf("ns-%d", n)
		rule := s.ruleIn(name)
		s.index.SetRule(rule)
		for i := range pods {
			pod := waits(i).Namespace(name).UID(types.UID(fmt.Sprintf("%s-%d", name, i))).Obj()
			pod.Name = name + "-" + pod.Name
			s.put(pod)
		}
	}
	for n := range namespaces {
		group.Go(func() {
			for range 5 {
				if _, err := s.reconciler.Reconcile(t.Context(), fmt.Sprintf("ns-%d", n)); err != nil {
					t.Error(err)
				}
			}
		})
		group.Go(func() {
			for i := range pods {
				s.mu.Lock()
				s.put(s.pods[fmt.Sprintf("ns-%d-web-%03d", n, i)])
				s.mu.Unlock()
			}
		})
	}
	group.Wait()
	for n := range namespaces {
		s.must(func() error {
			_, err := s.reconciler.Reconcile(t.Context(), fmt.Sprintf("ns-%d", n))
			return err
		}())
	}
	if got := len(slices.Compact(s.permitted())); got != namespaces*pods/2 {
		t.Errorf("%d pods permitted, want half of %d", got, namespaces*pods)
	}
}

func (s *harness) ruleIn(namespace string) *appsv1alpha1.PodTransitionRule {
	s.rules("template", atMostUnavailable("half", "50%"))
	rule := s.object("template").DeepCopy()
	s.index.DeleteRule(ruleKey(rule))
	rule.Namespace, rule.UID, rule.ResourceVersion = namespace, types.UID(namespace), s.next()
	return rule
}
