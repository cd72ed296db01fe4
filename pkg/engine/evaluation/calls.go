package evaluation

import (
	"context"
	"slices"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/webhookrule/webhookclient"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask/dispatch"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// Webhooks returns the services of the webhook rules, by rule.
func (s Snapshot) Webhooks() map[rule.RuleID]dispatch.Service {
	services := map[rule.RuleID]dispatch.Service{}
	for _, rules := range s.prepared {
		for _, prepared := range rules {
			if prepared.webhook != nil && prepared.err == nil {
				services[prepared.id] = dispatch.NewService(*prepared.webhook, false)
			}
		}
	}
	return services
}

// loadTasks reads the calls of a webhook rule from the status, and applies the results that have arrived
// since. It returns the requests with their tasks.
func (w *evaluating) loadTasks(eval *Rule, requests []rule.Request) []rule.Request {
	object, spec, now := eval.ruleset.View.Object, eval.prepared.spec, eval.env.Now
	known := w.calls.Rules[eval.prepared.id]
	plan := &CallPlan{
		Rule:    webhooktask.NewRule(object.Generation, *eval.prepared.webhook, webhookRules(object)),
		Stored:  findWebhookStatus(object, spec.Name),
		Results: known.Results,
	}
	plan.Rule.RejectionRetry = w.rejectionRetry
	eval.Calls = plan
	tasks := webhooktask.FromStatus(plan.Stored)
	for _, result := range plan.Results {
		var unknown []string
		tasks, unknown = result.Apply(tasks, plan.Rule, now)
		plan.Unknown = append(plan.Unknown, unknown...)
	}
	isKnown := func(traceID string) bool { return known.Posts[traceID] }
	plan.Tasks = tasks.Interrupted(isKnown, now).Expire(plan.Rule, now).Forget(requests, plan.Rule, now)
	return plan.withTasks(requests, now)
}

// skipCalls records calls as failed without sending them while the circuit breaker of their service is open. That takes
// one status write instead of two. A round does this for at most one rule (Calls.MaySkip). It returns the requests with
// their new tasks, and their verdicts.
func (w *evaluating) skipCalls(
	ctx context.Context, eval *Rule, recalled *Recollection, requests []rule.Request, verdicts []rule.Verdict,
) ([]rule.Request, []rule.Verdict) {
	var wants []rule.Request
	for i, verdict := range verdicts {
		if verdict.Call && !w.heldByCheaper(requests[i]) {
			wants = append(wants, requests[i])
		}
	}
	failure := w.calls.Rules[eval.prepared.id].CircuitOpen
	if len(wants) == 0 || failure == nil {
		return requests, verdicts
	}
	if !w.calls.MaySkip || len(w.Skipped) > 0 {
		w.retryIn(RetryBackground)
		later := slices.Clone(verdicts)
		for i := range later {
			later[i].Call = false
		}
		return requests, later
	}
	plan, now := eval.Calls, eval.env.Now
	plan.skipped = true
	tasks, posts := plan.Tasks.Open(wants, plan.Rule, now, newTraceID)
	for _, post := range posts {
		tasks = tasks.PostFailed(post.TraceID, dispatch.NewFailure(*failure), plan.Rule, now)
	}
	plan.Tasks = tasks
	w.Skipped = append(w.Skipped, SkippedCalls{Rule: eval, Calls: len(posts), Failure: failure})
	known := plan.withTasks(requests, now)
	return known, w.verdicts(ctx, eval, recalled, known, 0)
}

// OpenCalls adds the calls about the requests that need a call and that no cheaper rule withholds, and compares the calls
// with the stored status. admit is called before POSTs of a rule are added: it reports that the next POST is the probe of
// a half-open circuit breaker, or returns the failure that a POST would have. After a failure no call is added, and the
// round is repeated once a call may be admitted; a probe is one call.
func (e *Evaluation) OpenCalls(admit func(id rule.RuleID, service dispatch.Service) (probe bool, failure *webhookclient.Failure)) {
	for _, eval := range e.inOrder {
		plan := eval.Calls
		if plan == nil {
			continue
		}
		wants := slices.DeleteFunc(plan.wants, e.heldByCheaper)
		tasks, posts := plan.Tasks.Open(wants, plan.Rule, eval.env.Now, newTraceID)
		if len(posts) > 0 {
			probe, failure := admit(eval.ID(), dispatch.NewService(*eval.Webhook(), false))
			switch {
			case failure != nil:
				e.retryIn(max(failure.RetryAfter, RetryStale))
				tasks, posts = plan.Tasks, nil
			case probe:
				tasks, posts = plan.Tasks.Open(posts[0].Requests, plan.Rule, eval.env.Now, newTraceID)
			}
		}
		plan.Tasks, plan.Posts = tasks, posts
		if !apiequality.Semantic.DeepEqual(plan.Stored, plan.Tasks.Status(eval.env.Now)) {
			eval.ruleset.CallsChanged = true
		}
	}
}

func newTraceID() string { return string(uuid.NewUUID()) }

// webhookRules returns how many rules of a PodTransitionRule share the capacity for calls.
func webhookRules(object *appsv1alpha1.PodTransitionRule) int {
	count := 0
	for _, rule := range object.Spec.Rules {
		if rule.Webhook != nil {
			count++
		}
	}
	return count
}

func findWebhookStatus(object *appsv1alpha1.PodTransitionRule, rule string) *appsv1alpha1.WebhookStatus {
	for _, state := range object.Status.RuleStates {
		if state.Name == rule {
			return state.WebhookStatus
		}
	}
	return nil
}
