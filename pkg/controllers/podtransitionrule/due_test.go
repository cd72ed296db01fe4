package podtransitionrule

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/engine/evaluation"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/webhookrule/webhookclient"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask/dispatch"
)

// clockwork makes rounds only when a real manager would: when one is woken, or when the time of the
// last one is over.
type clockwork struct {
	*harness

	// timer is when a round comes by itself; zero: never. seen counts the wakes that led to a
	// round.
	timer time.Time
	seen  int

	// flying are the calls under way; polls has when the last poll of a task ended, and how
	// many have failed since one was answered.
	flying []dispatch.Call
	polls  map[string]ended

	// timeout is that of the polls of the rule.
	timeout time.Duration
}

type ended struct {
	at       time.Time
	failures int
}

// pollEvery is the interval of the polled rules of webhookRule.
const pollEvery = 5 * time.Second

// run makes rounds until no further round is scheduled.
func (c *clockwork) run(t *rapid.T) {
	for rounds := 0; c.news > c.seen || !c.timer.IsZero() && !c.clock.Now().Before(c.timer); rounds++ {
		if rounds > 20 {
			t.Fatalf("rounds wake each other")
		}
		c.seen = c.news
		result := c.round()
		c.timer = time.Time{}
		if result.RequeueAfter > 0 {
			c.timer = c.clock.Now().Add(result.RequeueAfter)
		}
		calls, _ := c.service.take()
		c.flying = append(c.flying, calls...)
		if c.news == c.seen {
			c.expectScheduled(t)
		}
	}
}

// expectScheduled checks that at the end of a round everything that is due is under way, and for everything that
// will be there is a timer.
func (c *clockwork) expectScheduled(t *rapid.T) {
	for _, state := range c.object("web").Status.RuleStates {
		for _, task := range state.WebhookStatus.TaskStates {
			due, slack := time.Time{}, evaluation.RetryBackground
			switch task.Phase {
			case appsv1alpha1.TaskPosting:
				if c.underWay(task.TraceID) {
					continue
				}
				slack = statusInterval // a failure is in hand, and its status is not urgent
			case appsv1alpha1.TaskPolling:
				if c.underWay(task.TraceID) {
					continue
				}
				if !c.clock.Now().Before(task.BeginTime.Add(c.timeout + time.Second)) {
					slack = statusInterval // it has expired, and its status is not urgent
				} else if last, has := c.polls[task.TraceID]; has {
					due = last.at.Add(min(pollEvery<<last.failures, time.Minute))
				}
			default:
				if task.NextTime == nil || !task.NextTime.After(c.clock.Now()) {
					continue
				}
				due = task.NextTime.Time
			}
			if late := max(due.Sub(c.clock.Now()), 0) + slack; c.timer.IsZero() || c.timer.Sub(c.clock.Now()) > late {
				t.Fatalf("at %v a %s of %s is due at %v, and the next round comes at %v", c.clock.Now(), task.Phase, task.TraceID, due, c.timer)
			}
		}
	}
}

func (c *clockwork) underWay(traceID string) bool {
	return slices.ContainsFunc(c.flying, func(call dispatch.Call) bool { return call.TraceID == traceID })
}

// pass lets time pass up to the next round, or for some time if that comes first.
func (c *clockwork) pass(d time.Duration) {
	now := c.clock.Now().Add(d)
	if !c.timer.IsZero() && c.timer.Before(now) {
		now = c.timer
	}
	c.clock.SetTime(now)
}

// answer ends one of the calls under way.
func (c *clockwork) answer(t *rapid.T) {
	if len(c.flying) == 0 {
		return
	}
	at := rapid.IntRange(0, len(c.flying)-1).Draw(t, "call")
	call := c.flying[at]
	c.flying = slices.Delete(c.flying, at, at+1)
	result := dispatch.Result{Call: call}
	fails := rapid.IntRange(0, 3).Draw(t, "fails") == 0
	switch {
	case fails:
		result.Failure = &webhookclient.Failure{Class: webhookclient.ClassRefused, Message: "no listener"}
	case call.Post != nil:
		result.Post = &webhooktask.PostAnswer{
			Success: rapid.IntRange(0, 3).Draw(t, "success") > 0, Poll: rapid.Bool().Draw(t, "poll"), TaskID: "task of " + call.TraceID,
		}
	default:
		result.Poll = &webhooktask.PollAnswer{Success: true, Finished: rapid.IntRange(0, 5).Draw(t, "finished") == 0}
	}
	if call.Poll != nil {
		last := ended{at: c.clock.Now()}
		if fails {
			last.failures = c.polls[call.TraceID].failures + 1
		}
		c.polls[call.TraceID] = last
	}
	c.deliver(result)
}

// TestNothingIsDueAndUnscheduled holds for all answers of the service and all failures of status
// writes.
func TestNothingIsDueAndUnscheduled(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := &clockwork{harness: newHarness(t, opa.Options{}), polls: map[string]ended{}}
		rule := webhookRule("approval", true)
		seconds := rapid.Int64Range(4, 90).Draw(rt, "timeout")
		rule.Webhook.ClientConfig.Poll.TimeoutSeconds = &seconds
		c.timeout = time.Duration(seconds) * time.Second
		c.rules("web", rule)
		for i := range rapid.IntRange(1, 3).Draw(rt, "pods") {
			c.put(waits(i).Obj())
		}
		c.run(rt)
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			switch rapid.SampledFrom([]string{"answer", "answer", "time", "time", "conflict", "pod"}).Draw(rt, "what") {
			case "answer":
				c.answer(rt)
			case "time":
				c.pass(time.Duration(rapid.IntRange(1, 30_000).Draw(rt, "ms")) * time.Millisecond)
			case "conflict":
				conflicts := rapid.IntRange(1, 2).Draw(rt, "times")
				c.refuseStatus = func() error {
					if conflicts--; conflicts < 0 {
						c.refuseStatus = nil
						return nil
					}
					return errConflict()
				}
			case "pod":
				c.put(waits(rapid.IntRange(3, 6).Draw(rt, "pod")).Obj())
			}
			c.run(rt)
		}
	})
}

// TestATaskIsPolledInTheRoundThatStoresIt matters because with a short timeout there would be no poll at all.
func TestATaskIsPolledInTheRoundThatStoresIt(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.rules("web", webhookRule("approval", true))
	s.put(waits(0).Obj())
	s.round()
	call := s.expectCalls("at first", "POST web-000")[0]
	s.deliver(dispatch.Result{Call: call, Post: &webhooktask.PostAnswer{Success: true, Poll: true, TaskID: "t1"}})
	s.step(time.Second)
	if got := s.object("web").Status.RuleStates[0].WebhookStatus.TaskStates[0].Phase; got != appsv1alpha1.TaskPolling {
		t.Fatalf("the task is %s in status", got)
	}
	s.expectCalls("with the answer", "GET t1")
}

// TestARejectionWithoutPollIsRetriedSteadily matters because a rejection is an answer and no failure.
func TestARejectionWithoutPollIsRetriedSteadily(t *testing.T) {
	s := newHarness(t, opa.Options{})
	s.rules("web", webhookRule("approval", false))
	s.put(waits(0).Obj())
	s.round()
	for range 20 {
		call := s.expectCalls("called", "POST web-000")[0]
		s.deliver(dispatch.Result{Call: call, Post: &webhooktask.PostAnswer{Message: "not yet"}})
		s.step(time.Second)
		next := s.object("web").Status.Blocked[0].NextCheck
		if pause := next.Sub(s.clock.Now()); pause < 11*time.Second || pause > 20*time.Second {
			t.Fatalf("called again after %s, want about 15 s", pause)
		}
		s.clock.SetTime(next.Time)
		s.round()
	}
	s.deliver(dispatch.Result{Call: s.expectCalls("called", "POST web-000")[0], Post: &webhooktask.PostAnswer{Success: true}})
	s.step(time.Second)
	s.expectPermitted("at last", "web-000")
	if got := strings.Join(s.recorded(), "\n"); strings.Contains(got, "not yet") && strings.Count(got, "not yet") > 2 {
		t.Errorf("the no is recorded again and again:\n%s", got)
	}
}
