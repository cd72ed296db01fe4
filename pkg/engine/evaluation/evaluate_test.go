package evaluation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/runtime/lanes"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"github.com/podops-dev/podops/pkg/webhookrule/webhookclient"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask/dispatch"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// verdictOn is a program whose verdict depends on the request alone.
type verdictOn func(rule.Request) rule.Verdict

func (f verdictOn) Evaluate(
	_ context.Context, _ appsv1alpha1.TransitionStage, _ rule.Environment, requests []rule.Request,
) (rule.Result, error) {
	result := rule.Result{Verdicts: map[string]rule.Verdict{}, Capacity: &rule.Capacity{Slots: 1, Desired: 3, MaxUnavailable: 1, MinAvailable: -1}}
	for _, request := range requests {
		result.Verdicts[request.Key()] = f(request)
	}
	return result, nil
}
func (f verdictOn) NeedsCounts() bool        { return false }
func (f verdictOn) VerdictsNeedCounts() bool { return false }
func (f verdictOn) Needs() opa.Needs         { return opa.Needs{} }
func (f verdictOn) Source() string           { return "source" }

// denies denies the pods with these names.
func denies(code rule.Code, pods ...string) verdictOn {
	return func(request rule.Request) rule.Verdict {
		if slices.Contains(pods, request.Pod.Name) {
			return rule.Verdict{Code: code, Message: "no"}
		}
		return rule.Verdict{Outcome: rule.Passed}
	}
}

// calls decides like the library about a rule of kind webhook.
func calls(request rule.Request) rule.Verdict {
	switch request.Task.State {
	case "":
		return rule.Verdict{Code: rule.CodeWebhookPending, Call: true}
	case rule.TaskApproved:
		return rule.Verdict{Outcome: rule.Passed}
	default:
		return rule.Verdict{Code: rule.CodeWebhookFailed, Message: request.Task.Message, Call: request.Task.RetryDue}
	}
}

// prepare returns a rule of a program, of kind webhook if it calls.
func prepare(ruleset, name string, program verdictOn, webhook bool, change func(*appsv1alpha1.TransitionRule)) *preparedRule {
	entry := appsv1alpha1.TransitionRule{Name: name, Stage: stage, LabelCheck: &appsv1alpha1.LabelCheck{}}
	prepared := &preparedRule{kind: rule.KindLabelCheck, stage: stage, program: program}
	if webhook {
		entry.LabelCheck, prepared.kind = nil, rule.KindWebhook
		entry.Webhook = &appsv1alpha1.TransitionRuleWebhook{ClientConfig: appsv1alpha1.WebhookClientConfig{URL: "https://approvals.example.com"}}
		prepared.webhook = entry.Webhook
	}
	if change != nil {
		change(&entry)
	}
	prepared.spec, prepared.id = entry, rule.RuleID{Ruleset: types.NamespacedName{Namespace: "shop", Name: ruleset}, Rule: name}
	prepared.ruleState = ruleState{counters: newCounters(entry, 1)}
	return prepared
}

// snapshotOf returns a snapshot in which the rules of each PodTransitionRule apply to all requests.
func newSnapshot(requests []rule.Request, rules ...*preparedRule) Snapshot {
	s := Snapshot{prepared: map[string][]*preparedRule{}}
	s.Namespace, s.NamespaceLabels, s.Waiting = "shop", map[string]string{}, requests
	for _, prepared := range rules {
		name := prepared.id.Ruleset.Name
		if s.prepared[name] == nil {
			object := &appsv1alpha1.PodTransitionRule{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Generation: 1}}
			s.Rules = append(s.Rules, podindex.RuleView{Object: object, Waiting: requests, Counts: rule.Counts{Selected: 3, Desired: 3, Available: 3}})
		}
		s.prepared[name] = append(s.prepared[name], prepared)
		at := slices.IndexFunc(s.Rules, func(view podindex.RuleView) bool { return view.Object.Name == name })
		s.Rules[at].Object.Spec.Rules = append(s.Rules[at].Object.Spec.Rules, prepared.spec)
	}
	return s
}

func testTurn() *Turn {
	clock := clocktesting.NewFakePassiveClock(noon)
	l := lanes.New(lanes.Options{})
	lane, _ := l.Enter("shop", noon)
	return NewTurn(TurnOptions{
		Namespace: "shop", Clock: clock, Lanes: l, Lane: lane, Budget: DefaultBudget, Memory: DefaultMemory, Remember: DefaultMemory,
		Governed: func() bool { return true },
	})
}

// decide makes a round.
func decide(t *testing.T, s Snapshot, state *State, known Calls, now time.Time) Outcome {
	t.Helper()
	turn, evaluator := testTurn(), New(Config{RejectionRetry: time.Minute})
	evaluated := evaluator.Evaluate(t.Context(), turn, s, state, nil, known, now)
	evaluated.OpenCalls(func(rule.RuleID, dispatch.Service) (bool, *webhookclient.Failure) { return false, nil })
	return Outcome{Evaluation: evaluated, Allocation: evaluated.Allocate(t.Context(), turn, now)}
}

// summary returns "<pod>: permitted", or the reasons and warnings, of each request.
func summary(s Snapshot, o Outcome) []string {
	var lines []string
	for _, request := range s.Waiting {
		words := []string{}
		if o.IsPermitted(request.Key()) {
			words = append(words, "permitted")
		}
		for _, reason := range o.Reasons(request.Key()) {
			words = append(words, fmt.Sprintf("%s %s", reason.Rule, reason.Code))
		}
		for _, reason := range o.Warnings(request.Key()) {
			words = append(words, fmt.Sprintf("warned by %s", reason.Rule))
		}
		for _, waiver := range o.Waivers(request) {
			words = append(words, fmt.Sprintf("waived %s %s", waiver.Rule, waiver.Exception))
		}
		lines = append(lines, request.Pod.Name+": "+strings.Join(words, ", "))
	}
	return lines
}

func TestEvaluate(t *testing.T) {
	two := func() []rule.Request { return []rule.Request{request("a", "1"), request("b", "1")} }
	warns := func(entry *appsv1alpha1.TransitionRule) { entry.Enforcement = appsv1alpha1.EnforcementWarn }
	tries := func(entry *appsv1alpha1.TransitionRule) { entry.Enforcement = appsv1alpha1.EnforcementDryRun }
	would := func(rule.Request) rule.Verdict { return rule.Verdict{Outcome: passed, Would: rule.CodeDenied} }
	broken := prepare("web", "broken", nil, false, nil)
	broken.program, broken.err = nil, &unusableRuleError{rule.CodeCompileFailed, context.Canceled}
	stopped := prepare("web", "stopped", denies(rule.CodeDenied), false, nil)
	stopped.quarantined = &appsv1alpha1.Quarantine{Message: "too expensive"}
	for name, tc := range map[string]struct {
		rules  []*preparedRule
		change func(*Snapshot)
		want   []string
	}{
		"without rules": {want: []string{"a: permitted", "b: permitted"}},
		"one rule":      {rules: []*preparedRule{prepare("web", "r", denies(rule.CodeDenied, "a"), false, nil)}, want: []string{"a: web/r Denied", "b: permitted"}},
		"each rule has a say": {
			rules: []*preparedRule{
				prepare("web", "r", denies(rule.CodeDenied, "a"), false, nil), prepare("other", "s", denies(rule.CodeLabelMismatch, "a", "b"), false, nil),
			},
			want: []string{"a: other/s LabelMismatch, web/r Denied", "b: other/s LabelMismatch"},
		},
		"a rule that warns":      {rules: []*preparedRule{prepare("web", "r", would, false, warns)}, want: []string{"a: permitted, warned by web/r", "b: permitted, warned by web/r"}},
		"a rule that is tried":   {rules: []*preparedRule{prepare("web", "r", would, false, tries)}, want: []string{"a: permitted", "b: permitted"}},
		"a rule without program": {rules: []*preparedRule{broken}, want: []string{"a: web/broken CompileFailed", "b: web/broken CompileFailed"}},
		"a rule under quarantine": {
			rules: []*preparedRule{stopped}, want: []string{"a: web/stopped PolicyTooExpensive", "b: web/stopped PolicyTooExpensive"},
		},
		"break-glass of the namespace": {
			rules:  []*preparedRule{prepare("web", "r", denies(rule.CodeDenied, "a"), false, nil)},
			change: func(s *Snapshot) { s.BreakGlass = "fire" },
			want:   []string{"a: permitted, waived web/r BreakGlass", "b: permitted"},
		},
		"break-glass of one pod": {
			rules:  []*preparedRule{prepare("web", "r", denies(rule.CodeDenied, "a", "b"), false, nil)},
			change: func(s *Snapshot) { s.Waiting[1].Pod.BreakGlass = "fire" },
			want:   []string{"a: web/r Denied", "b: permitted, waived web/r BreakGlass"},
		},
		"a PodDisruptionBudget with one slot": {
			change: func(s *Snapshot) {
				for i := range s.Waiting {
					s.Waiting[i].Pod.Ready, s.Waiting[i].Pod.Available = true, true
				}
				s.Disruptions = []podindex.DisruptionView{disruptionView("pdb", 2, 3, s.Waiting)}
			},
			want: []string{"a: permitted", "b: PodDisruptionBudget/pdb NoRoom"},
		},
		"a PodDisruptionBudget whose status does not count": {
			change: func(s *Snapshot) {
				s.Waiting[0].Pod.Ready = true
				view := disruptionView("pdb", 1, 3, s.Waiting)
				view.Unknown = "it is stale"
				s.Disruptions = []podindex.DisruptionView{view}
			},
			want: []string{"a: PodDisruptionBudget/pdb BudgetUnknown", "b: permitted"},
		},
		"a PodDisruptionBudget, and a pod that is not ready": {
			change: func(s *Snapshot) {
				s.Waiting[1].Evicts = true // the eviction API would reject it, while a delete passes
				s.Disruptions = []podindex.DisruptionView{disruptionView("pdb", 3, 2, s.Waiting)}
			},
			want: []string{"a: permitted", "b: PodDisruptionBudget/pdb NoRoom"},
		},
		"an eviction of a pod with two PodDisruptionBudgets, which the API server rejects": {
			change: func(s *Snapshot) {
				s.Waiting[1].Evicts = true
				s.Disruptions = []podindex.DisruptionView{disruptionView("first", 0, 2, s.Waiting), disruptionView("second", 0, 2, s.Waiting)}
			},
			want: []string{"a: permitted", "b: PodDisruptionBudget/first NoRoom, PodDisruptionBudget/second NoRoom"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSnapshot(two(), tc.rules...)
			if tc.change != nil {
				tc.change(&s)
			}
			state := NewState()
			for range 2 { // what is remembered makes no difference
				if diff := cmp.Diff(tc.want, summary(s, decide(t, s, state, Calls{}, noon))); diff != "" {
					t.Errorf("decides (-want +got):\n%s", diff)
				}
			}
		})
	}
}

const passed = rule.Passed

// disruptionView returns a PodDisruptionBudget that requires so many pods, and of which so many are available.
func disruptionView(name string, desired, available int, requests []rule.Request) podindex.DisruptionView {
	view := podindex.DisruptionView{Waiting: requests}
	view.Namespace, view.Name, view.Desired, view.Available = "shop", name, desired, available
	return view
}

// TestHoldsEnd shows what becomes of a deferred delete that a rule holds for longer than it may.
func TestHoldsEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		action  appsv1alpha1.HoldAction
		after   time.Duration
		want    string
		expired int
	}{
		"not yet":     {action: appsv1alpha1.HoldRelease, after: time.Minute - time.Second, want: "a: other/r Denied, web/r Denied"},
		"is released": {action: appsv1alpha1.HoldRelease, after: time.Minute, want: "a: other/r Denied, waived web/r MaxHold"},
		"is undone":   {action: appsv1alpha1.HoldUndo, after: time.Minute, want: "a: other/r Denied, web/r Denied", expired: 1},
	} {
		t.Run(name, func(t *testing.T) {
			deferred := request("a", "1")
			deferred.ID, deferred.Type = appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType
			s := newSnapshot([]rule.Request{deferred}, prepare("web", "r", denies(rule.CodeDenied, "a"), false, nil), prepare("other", "r", denies(rule.CodeDenied, "a"), false, nil))
			s.Rules[0].Object.Spec.MaxHold, s.Rules[0].Object.Spec.OnMaxHold = &metav1.Duration{Duration: time.Minute}, tc.action
			state := NewState()
			decide(t, s, state, Calls{}, noon)
			outcome := decide(t, s, state, Calls{}, noon.Add(tc.after))
			if got := summary(s, outcome)[0]; got != tc.want {
				t.Errorf("decides %q, want %q", got, tc.want)
			}
			if expired, _ := outcome.Expired(s.Waiting); len(expired) != tc.expired {
				t.Errorf("%d operations are cancelled, want %d", len(expired), tc.expired)
			}
		})
	}
}

// TestCalls shows which calls of two webhook rules are made, by the circuit breaker of their service.
func TestCalls(t *testing.T) {
	open := &webhookclient.Failure{Class: webhookclient.ClassBreakerOpen, Message: "circuit breaker open", RetryAfter: 30 * time.Second}
	pods := func(count int) (requests []rule.Request) {
		for i := range count {
			requests = append(requests, request(fmt.Sprintf("pod-%02d", i), "1"))
		}
		return requests
	}
	for name, tc := range map[string]struct {
		pods    int
		denied  []string
		open    *webhookclient.Failure // when the round begins
		maySkip bool
		probe   bool
		refused *webhookclient.Failure // when calls are admitted

		wantAdmitted, wantSkipped int
		wantCalls                 []int // pods of each call
		wantRetry                 time.Duration
	}{
		"no pod waits":                         {},
		"one pod":                              {pods: 1, wantAdmitted: 2, wantCalls: []int{1, 1}},
		"a cheaper rule withholds the pod":     {pods: 2, denied: []string{"pod-00"}, wantAdmitted: 2, wantCalls: []int{1, 1}},
		"a cheaper rule withholds all":         {pods: 1, denied: []string{"pod-00"}, open: open, maySkip: true},
		"it opens meanwhile":                   {pods: 1, refused: open, wantAdmitted: 2, wantRetry: open.RetryAfter},
		"a probe is one call":                  {pods: 30, probe: true, wantAdmitted: 2, wantCalls: []int{25, 25}},
		"more pods than one call has":          {pods: 30, wantAdmitted: 2, wantCalls: []int{25, 5, 25, 5}},
		"it is open":                           {pods: 1, open: open, maySkip: true, wantSkipped: 1, wantRetry: RetryBackground},
		"it is open, and another round writes": {pods: 1, open: open, wantRetry: RetryBackground},
	} {
		t.Run(name, func(t *testing.T) {
			requests := pods(tc.pods)
			s := newSnapshot(requests,
				prepare("cheap", "r", denies(rule.CodeDenied, tc.denied...), false, nil),
				prepare("web", "first", calls, true, nil), prepare("web", "second", calls, true, nil))
			known := Calls{Rules: map[rule.RuleID]KnownCalls{}, MaySkip: tc.maySkip}
			if got := len(s.Webhooks()); got != 2 {
				t.Fatalf("%d webhook rules", got)
			}
			for id := range s.Webhooks() {
				known.Rules[id] = KnownCalls{CircuitOpen: tc.open}
			}
			evaluated := New(Config{RejectionRetry: time.Minute}).Evaluate(t.Context(), testTurn(), s, NewState(), nil, known, noon)
			admitted := 0
			evaluated.OpenCalls(func(rule.RuleID, dispatch.Service) (bool, *webhookclient.Failure) {
				admitted++
				return tc.probe, tc.refused
			})
			var got []int
			for _, eval := range evaluated.Rulesets["web"].Rules {
				for _, post := range eval.Calls.Posts {
					got = append(got, len(post.Requests))
				}
			}
			if diff := cmp.Diff(tc.wantCalls, got); diff != "" {
				t.Errorf("pods of the calls (-want +got):\n%s", diff)
			}
			if admitted != tc.wantAdmitted || len(evaluated.Skipped) != tc.wantSkipped || evaluated.Retry != tc.wantRetry {
				t.Errorf("%d calls are admitted, %d rules skip theirs, comes back after %s; want %d, %d, %s",
					admitted, len(evaluated.Skipped), evaluated.Retry, tc.wantAdmitted, tc.wantSkipped, tc.wantRetry)
			}
			if want := len(tc.wantCalls)+tc.wantSkipped > 0; evaluated.Rulesets["web"].CallsChanged != want || want != evaluated.Rulesets["web"].IsUrgent() {
				t.Errorf("the status has calls to record: %t, want %t", evaluated.Rulesets["web"].CallsChanged, want)
			}
			if tc.wantSkipped > 0 {
				reasons := Outcome{Evaluation: evaluated}.Reasons(requests[0].Key())
				if len(reasons) != 2 || !slices.ContainsFunc(reasons, func(reason rule.Reason) bool {
					return reason.Code == rule.CodeWebhookFailed && strings.Contains(reason.Message, open.Message)
				}) {
					t.Errorf("withheld for %v", reasons)
				}
			}
		})
	}
}
