package podtransitionrule

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/webhookrule/webhookclient"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask/dispatch"
)

// service keeps the calls that rounds make, until the test answers them.
type service struct {
	calls []dispatch.Call
	gone  []rule.RuleID

	// open is the failure of calls while the circuit breaker is open; skipped are the rules
	// whose calls were not made.
	open    *webhookclient.Failure
	skipped []rule.RuleID
}

func (s *service) CircuitOpen(rule.RuleID, dispatch.Service) *webhookclient.Failure { return s.open }

func (s *service) Admit(rule.RuleID, dispatch.Service) (bool, *webhookclient.Failure) {
	return false, s.open
}

func (s *service) CountSkipped(rule rule.RuleID, _ dispatch.Service, _ *webhookclient.Failure) {
	s.skipped = append(s.skipped, rule)
}

func (s *service) Call(_ context.Context, call dispatch.Call) { s.calls = append(s.calls, call) }

func (s *service) Forget(rule rule.RuleID) { s.gone = append(s.gone, rule) }

// take returns the calls since its last call, as "POST web-000 web-001" and
// "GET <task>".
func (s *service) take() (calls []dispatch.Call, texts []string) {
	calls, s.calls = s.calls, nil
	texts = []string{}
	for _, call := range calls {
		if call.Poll != nil {
			texts = append(texts, "GET "+call.Poll.TaskID)
			continue
		}
		text := "POST"
		for _, resource := range call.Post.Resources {
			text += " " + resource.Name
		}
		texts = append(texts, text)
	}
	return calls, texts
}

func webhookRule(name string, poll bool) appsv1alpha1.TransitionRule {
	rule := appsv1alpha1.TransitionRule{
		Name: name, Stage: appsv1alpha1.StagePreCheck, Enforcement: appsv1alpha1.EnforcementEnforce,
		Webhook: &appsv1alpha1.TransitionRuleWebhook{
			ClientConfig:  appsv1alpha1.WebhookClientConfig{URL: "https://approvals.example.com/approve"},
			FailurePolicy: appsv1alpha1.FailurePolicyFail,
			Parameters: []appsv1alpha1.WebhookParameter{
				{Key: "team", Value: "shop"},
				{Key: "app", ValueFrom: &appsv1alpha1.ParameterSource{FieldRef: &appsv1alpha1.FieldRef{FieldPath: "metadata.labels['app']"}}},
				{Key: "ip", ValueFrom: &appsv1alpha1.ParameterSource{FieldRef: &appsv1alpha1.FieldRef{FieldPath: "status.podIP"}}},
			},
		},
	}
	if poll {
		interval, timeout := int64(5), int64(60)
		rule.Webhook.ClientConfig.Poll = &appsv1alpha1.WebhookPoll{
			URL: "https://approvals.example.com/result", IntervalSeconds: &interval, TimeoutSeconds: &timeout,
		}
	}
	return rule
}

// expectCalls fails unless just these were made since its last call.
func (s *harness) expectCalls(what string, want ...string) []dispatch.Call {
	s.t.Helper()
	calls, got := s.service.take()
	if diff := cmp.Diff(append([]string{}, want...), got); diff != "" {
		s.t.Fatalf("%s: calls differ (-want +got):\n%s", what, diff)
	}
	return calls
}

// expectPermitted fails unless just these pods were permitted since its last call.
func (s *harness) expectPermitted(what string, want ...string) {
	s.t.Helper()
	if diff := cmp.Diff(append([]string{}, want...), append([]string{}, s.permitted()...)); diff != "" {
		s.t.Errorf("%s: permitted pods differ (-want +got):\n%s", what, diff)
	}
}

// TestAnApproval shows the call about all pods, the answer, and the permits that follow.
func TestAnApproval(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.rules("web", webhookRule("approval", false))
	s.put(waits(0).Obj(), waits(1).Obj(), waits(2).Obj())
	s.round()
	call := s.expectCalls("at first", "POST web-000 web-001 web-002")[0]
	if len(s.statuses) != 1 || len(s.statuses[0].Status.RuleStates) != 1 || s.statuses[0].Status.RuleStates[0].WebhookStatus.TaskStates[0].TraceID != call.TraceID {
		t.Fatalf("the call is not in status: %+v", s.object("web").Status.RuleStates)
	}
	want := &webhookclient.PostRequest{
		TraceID: call.TraceID, Stage: "PreCheck", RuleName: "approval", Namespace: "default", PodTransitionRule: "web", OperationTypes: []string{"upgrade"},
	}
	for i := range 3 {
		want.Resources = append(want.Resources, webhookclient.PodResource(fmt.Sprintf("web-%03d", i), fmt.Sprintf("web-%03d-uid", i),
			map[string]string{"team": "shop", "app": "web", "ip": ""}))
		want.Resources[i].Labels = map[string]string{"app": "web", "kusionstack.io/control": "true"}
	}
	if diff := cmp.Diff(want, call.Post); diff != "" {
		t.Errorf("request differs (-want +got):\n%s", diff)
	}
	s.step(time.Second)
	s.expectCalls("while it is under way")
	s.expectPermitted("while it is under way")
	if got := s.blocked(); !strings.HasPrefix(got, "WebhookPending: ") {
		t.Errorf("waits for %q", got)
	}

	s.deliver(dispatch.Result{Call: call, Post: &webhooktask.PostAnswer{Message: "one of three", FinishedNames: []string{"web-001", "web-777"}}})
	s.step(time.Second)
	s.expectPermitted("partly approved", "web-001")
	if got := s.blocked(); !strings.HasPrefix(got, "WebhookRejected: ") || !strings.Contains(got, "one of three") {
		t.Errorf("the others wait for %q", got)
	}
	if events := strings.Join(s.recorded(), "\n"); strings.Count(events, EventUnknownPods) != 1 || !strings.Contains(events, "web-777") {
		t.Errorf("no event names the pod that the call did not contain:\n%s", events)
	}
	blocked := s.object("web").Status.Blocked[0]
	if blocked.NextCheck == nil {
		t.Fatalf("the status has no time of the next call: %+v", blocked)
	}
	s.clock.SetTime(blocked.NextCheck.Time)
	s.round()
	again := s.expectCalls("called again", "POST web-000 web-002")[0]
	if again.TraceID == call.TraceID {
		t.Error("the service is called again with the same id")
	}
	s.deliver(dispatch.Result{Call: again, Post: &webhooktask.PostAnswer{Success: true}})
	s.step(time.Second)
	s.expectPermitted("approved", "web-000", "web-002")
}

// TestAPolledApproval shows that a restart goes on polling, and posts nothing again.
func TestAPolledApproval(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.rules("web", webhookRule("approval", true))
	s.put(waits(0).Obj(), waits(1).Obj())
	s.round()
	call := s.expectCalls("at first", "POST web-000 web-001")[0]
	s.deliver(dispatch.Result{Call: call, Post: &webhooktask.PostAnswer{Success: true, Poll: true, TaskID: "t1"}})
	s.step(time.Second)
	s.step(5 * time.Second)
	poll := s.expectCalls("after the interval", "GET t1")[0]
	if poll.Service.URL != "https://approvals.example.com/result" {
		t.Errorf("polls at %s", poll.Service.URL)
	}
	s.deliver(dispatch.Result{Call: poll, Poll: &webhooktask.PollAnswer{Success: true, FinishedNames: []string{"web-000"}}})
	s.step(time.Second)
	s.expectPermitted("the first is approved", "web-000")

	next := restart(t, s)
	next.round()
	poll = next.expectCalls("after a restart", "GET t1")[0]
	next.deliver(dispatch.Result{Call: poll, Poll: &webhooktask.PollAnswer{Success: true, Finished: true}})
	next.step(time.Second)
	next.expectPermitted("all are approved", "web-001")
}

// TestTasksOfTwoRulesMayHaveOneID matters because the ids of services are only unique among the tasks of one rule.
func TestTasksOfTwoRulesMayHaveOneID(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.rules("web", webhookRule("capacity", true), webhookRule("security", true))
	s.put(waits(0).Obj())
	s.round()
	for _, call := range s.expectCalls("at first", "POST web-000", "POST web-000") {
		s.deliver(dispatch.Result{Call: call, Post: &webhooktask.PostAnswer{Success: true, Poll: true, TaskID: "1"}})
	}
	s.step(time.Second)
	s.step(5 * time.Second)
	polls := s.expectCalls("after the interval", "GET 1", "GET 1")
	if polls[0].Rule == polls[1].Rule {
		t.Fatalf("both polls are of rule %s", polls[0].Rule)
	}
	s.deliver(dispatch.Result{Call: polls[0], Poll: &webhooktask.PollAnswer{Success: true, Finished: true}})
	s.step(time.Second)
	s.expectPermitted("after the approval of one")
	s.deliver(dispatch.Result{Call: polls[1], Poll: &webhooktask.PollAnswer{Success: true, Finished: true}})
	s.step(time.Second)
	s.expectPermitted("after the approval of both", "web-000")
}

// TestARuleThatLosesItsPoll shows that a task that is polled ends with the version of the rule that polled it.
func TestARuleThatLosesItsPoll(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.rules("web", webhookRule("approval", true))
	s.put(waits(0).Obj())
	s.round()
	call := s.expectCalls("at first", "POST web-000")[0]
	s.deliver(dispatch.Result{Call: call, Post: &webhooktask.PostAnswer{Success: true, Poll: true, TaskID: "t1"}})
	s.step(time.Second)
	s.step(5 * time.Second)
	poll := s.expectCalls("after the interval", "GET t1")[0]

	edited := s.object("web").DeepCopy()
	edited.Generation++
	edited.Spec.Rules[0].Webhook.ClientConfig.Poll = nil
	s.index.SetRule(edited)
	s.deliver(dispatch.Result{Call: poll, Poll: &webhooktask.PollAnswer{Success: true, Finished: true}})
	s.step(time.Second)
	s.expectPermitted("by the answer to the earlier version")
	again := s.expectCalls("under the edited rule", "POST web-000")[0]
	s.deliver(dispatch.Result{Call: again, Post: &webhooktask.PostAnswer{Success: true}})
	s.step(time.Second)
	s.expectPermitted("by the answer to the edited rule", "web-000")
}

// TestARestartDuringAPost matters because it is unknown whether the service has seen it, so it is called
// again later, under another id.
func TestARestartDuringAPost(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.rules("web", webhookRule("approval", false))
	s.put(waits(0).Obj())
	s.round()
	call := s.expectCalls("at first", "POST web-000")[0]

	next := restart(t, s)
	next.round()
	next.expectCalls("at once")
	next.expectPermitted("at once")
	if got := next.blocked(); !strings.Contains(got, "the manager ended during the call") {
		t.Errorf("waits for %q", got)
	}
	next.step(time.Minute)
	if again := next.expectCalls("later", "POST web-000")[0]; again.TraceID == call.TraceID {
		t.Error("it is sent again under the same id")
	}
}

// TestACallIsMadeOnlyWhenStatusHasIt shows that a status that cannot be written makes no call.
func TestACallIsMadeOnlyWhenStatusHasIt(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.rules("web", webhookRule("approval", false))
	s.put(waits(0).Obj())
	s.refuseStatus = func() error { return errConflict() }
	s.round()
	s.expectCalls("after a conflict")
	s.refuseStatus = nil
	s.step(time.Second)
	s.expectCalls("when it is written", "POST web-000")
}

// TestAServiceWhoseCircuitBreakerIsOpen shows that its rules have a result with the first write, and it is called
// about again like after every failure.
func TestAServiceWhoseCircuitBreakerIsOpen(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.rules("web", webhookRule("approval", false))
	s.put(waits(0).Obj())
	s.service.open = &webhookclient.Failure{Class: webhookclient.ClassBreakerOpen, Message: "circuit breaker open", RetryAfter: 30 * time.Second}
	s.round()
	s.expectCalls("while it is open")
	s.expectPermitted("while it is open")
	if got := len(s.service.skipped); got != 1 {
		t.Errorf("%d calls are counted as skipped, want 1", got)
	}
	status := s.object("web").Status
	if got := s.blocked(); !strings.HasPrefix(got, "WebhookFailed: ") || !strings.Contains(got, "circuit breaker open") {
		t.Errorf("waits for %q", got)
	}
	if next := status.Blocked[0].NextCheck; next == nil || next.Sub(s.clock.Now()) < 30*time.Second {
		t.Errorf("is called again at %v", next)
	}
	s.step(2 * statusInterval)
	if diff := cmp.Diff([]string{"web"}, s.written()); diff != "" {
		t.Errorf("statuses written (-want +got):\n%s", diff)
	}
	s.service.open = nil
	s.clock.SetTime(status.Blocked[0].NextCheck.Time)
	s.round()
	s.expectCalls("later", "POST web-000")
}

// TestIgnoreDoesNotOverruleAnAnswer shows that a service that has answered no and cannot be reached any more has answered
// no, also to a manager that was restarted since.
func TestIgnoreDoesNotOverruleAnAnswer(t *testing.T) {
	for name, answer := range map[string]webhooktask.PostAnswer{
		"a no":              {Message: "frozen"},
		"it was working on": {Success: true, Poll: true, TaskID: "t1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newHarness(t, opa.Options{})
			rule := webhookRule("approval", true)
			rule.Webhook.FailurePolicy = appsv1alpha1.FailurePolicyIgnore
			s.rules("web", rule)
			s.put(waits(0).Obj())
			s.round()
			call := s.expectCalls("at first", "POST web-000")[0]
			s.deliver(dispatch.Result{Call: call, Post: &answer})
			s.step(time.Second)
			s = restart(t, s)
			for range 100 {
				s.step(20 * time.Second)
				calls, _ := s.service.take()
				for _, call := range calls {
					s.deliver(dispatch.Result{Call: call, Failure: &webhookclient.Failure{Class: webhookclient.ClassRefused, Message: "no listener"}})
				}
			}
			s.step(time.Second)
			s.expectPermitted("after half an hour without a connection")
		})
	}
}

// TestFailurePolicy shows that a request without an answer passes with Ignore, and waits with Fail.
func TestFailurePolicy(t *testing.T) {
	for policy, want := range map[appsv1alpha1.FailurePolicy][]string{
		appsv1alpha1.FailurePolicyFail: {}, appsv1alpha1.FailurePolicyIgnore: {"web-000"},
	} {
		t.Run(string(policy), func(t *testing.T) {
			s := newHarness(t, opa.Options{})
			rule := webhookRule("approval", false)
			rule.Webhook.FailurePolicy = policy
			s.rules("web", rule)
			s.put(waits(0).Obj())
			s.round()
			call := s.expectCalls("at first", "POST web-000")[0]
			s.deliver(dispatch.Result{Call: call, Failure: &webhookclient.Failure{Class: webhookclient.ClassRefused, Message: "no listener"}})
			s.step(time.Second)
			s.expectPermitted("after the failure", want...)
			if got := s.blocked(); policy == appsv1alpha1.FailurePolicyFail && (!strings.HasPrefix(got, "WebhookFailed: ") || !strings.Contains(got, "(Unreachable)") || strings.Contains(got, "no listener")) {
				t.Errorf("waits for %q", got)
			}
		})
	}
}

// TestAnApprovalIsForThisPodThisWaitingAndThisRule.
func TestAnApprovalIsForThisPodThisWaitingAndThisRule(t *testing.T) {
	for name, change := range map[string]func(*harness){
		"the rule was edited": func(s *harness) { s.rules("web", webhookRule("approval", false), labelled("approved", "approved")) },
		"another pod has the name": func(s *harness) {
			s.must(s.store.Delete(s.pods["web-000"]))
			s.put(waits(0).UID("another").Obj())
		},
		"it waits again": func(s *harness) { s.put(waits(7).UID("web-000-uid").Obj()) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newHarness(t, opa.Options{})
			s.rules("web", webhookRule("approval", false), labelled("approved", "approved"))
			s.put(waits(0).Label("approved", "yes").Obj())
			s.round()
			call := s.expectCalls("at first", "POST web-000")[0]
			change(s)
			s.deliver(dispatch.Result{Call: call, Post: &webhooktask.PostAnswer{Success: true}})
			s.step(2 * time.Second)
			s.expectPermitted("by the old answer")
		})
	}
}

// TestCallsOfARuleThatIsGoneAreForgotten.
func TestCallsOfARuleThatIsGoneAreForgotten(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.rules("web", webhookRule("approval", false))
	s.put(waits(0).Obj())
	s.round()
	call := s.expectCalls("at first", "POST web-000")[0]
	s.index.DeleteRule(ruleKey(s.object("web")))
	s.round()
	s.deliver(dispatch.Result{Call: call, Post: &webhooktask.PostAnswer{Success: true}})
	s.round()
	if diff := cmp.Diff([]rule.RuleID{call.Rule}, s.service.gone); diff != "" {
		t.Errorf("forgotten rules differ (-want +got):\n%s", diff)
	}
	if got := s.reconciler.state.calls.Results(call.Rule); len(got) != 0 {
		t.Errorf("%d results are kept of a rule that is gone", len(got))
	}
}
