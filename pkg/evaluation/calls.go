package evaluation

import (
	"context"
	"slices"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/uuid"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/rule"
	"github.com/podops-dev/podops/pkg/webhooktask"
	"github.com/podops-dev/podops/pkg/webhooktask/dispatch"
)

// CallPlan is the state of the calls of one webhook rule after a round, and the calls to make.
type CallPlan struct {
	Rule  webhooktask.Rule
	Tasks webhooktask.Tasks

	// Stored is the state of the calls in the status.
	Stored *appsv1alpha1.WebhookStatus

	// Results are part of Tasks, and not yet in the status.
	Results []dispatch.Result

	// Posts are sent once the status is written.
	Posts []webhooktask.Post

	// Unknown are names in answers that the calls did not contain.
	Unknown []string

	// skipped reports whether calls were recorded as failed without being made, because the circuit breaker
	// of the service is open.
	skipped bool
}

// loadTasks reads the calls of a webhook rule from the status, and applies the results that have arrived
// since. It returns the requests with their tasks.
func (e *Evaluator) loadTasks(work *ruleWork, requests []rule.Request) []rule.Request {
	object, spec, now := work.ruleset.View.Object, work.prepared.spec, work.env.Now
	plan := &CallPlan{
		Rule:    webhooktask.RuleOf(object.Generation, *work.prepared.webhook, webhookRules(object)),
		Stored:  webhookStatusOf(object, spec.Name),
		Results: e.calls.Results(work.prepared.id),
	}
	plan.Rule.RejectionRetry = e.rejectionRetry
	work.Calls = plan
	tasks := webhooktask.FromStatus(plan.Stored)
	for _, result := range plan.Results {
		var unknown []string
		tasks, unknown = result.Apply(tasks, plan.Rule, now)
		plan.Unknown = append(plan.Unknown, unknown...)
	}
	plan.Tasks = tasks.Interrupted(e.calls.IsKnown(work.prepared.id), now).Expire(plan.Rule, now).Forget(requests, plan.Rule, now)
	return plan.withTasks(requests, now)
}

// withTasks returns the requests with their tasks.
func (p *CallPlan) withTasks(requests []rule.Request, now time.Time) []rule.Request {
	known := slices.Clone(requests)
	for i := range known {
		known[i].Task = p.Tasks.Of(known[i], p.Rule, now)
	}
	return known
}

// skipCalls records calls as failed without sending them while the circuit breaker of their
// service is open. That takes one status write instead of two. It takes the background slot,
// so a round does this for at most one PodTransitionRule. It returns the requests with their new
// tasks, and their verdicts.
func (e *Evaluator) skipCalls(
	ctx context.Context, work *ruleWork, w *evaluating, requests []rule.Request, verdicts []rule.Verdict,
) ([]rule.Request, []rule.Verdict) {
	var wants []rule.Request
	for i, verdict := range verdicts {
		if verdict.Call && !w.heldByCheaper(requests[i]) {
			wants = append(wants, requests[i])
		}
	}
	if len(wants) == 0 {
		return requests, verdicts
	}
	id, service := work.prepared.id, dispatch.ServiceOf(*work.prepared.webhook, false)
	failure := e.services.CircuitOpen(id, service)
	if failure == nil {
		return requests, verdicts
	}
	if !w.turn.Slot.Take() {
		w.retryIn(RetryBackground)
		later := slices.Clone(verdicts)
		for i := range later {
			later[i].Call = false
		}
		return requests, later
	}
	plan, now := work.Calls, work.env.Now
	plan.skipped = true
	e.calls.Open(id)
	tasks, posts := plan.Tasks.Open(wants, plan.Rule, now, newTraceID)
	for _, post := range posts {
		e.services.CountSkipped(id, service, failure)
		tasks = tasks.PostFailed(post.TraceID, dispatch.FailureOf(*failure), plan.Rule, now)
	}
	plan.Tasks = tasks
	known := plan.withTasks(requests, now)
	return known, e.verdicts(ctx, work, w, known, 0)
}

// openCalls adds the calls about the requests that need a call and that no cheaper rule withholds,
// and compares the calls with the stored status.
func (e *Evaluator) openCalls(w *evaluating) {
	for _, work := range w.rules {
		if work.Calls == nil {
			continue
		}
		wants := slices.DeleteFunc(work.wants, w.heldByCheaper)
		e.open(work, w, wants)
		if !apiequality.Semantic.DeepEqual(work.Calls.Stored, work.Calls.Tasks.Status(work.env.Now)) {
			work.ruleset.CallsChanged = true
		}
	}
}

// open adds calls about requests. While the circuit breaker is half-open, open adds one call as its
// probe. If Admit returns a failure, open adds no call, and the round is repeated once a call may be
// admitted.
func (e *Evaluator) open(work *ruleWork, w *evaluating, wants []rule.Request) {
	plan, now := work.Calls, work.env.Now
	tasks, posts := plan.Tasks.Open(wants, plan.Rule, now, newTraceID)
	if len(posts) == 0 {
		plan.Tasks = tasks
		return
	}
	probe, failure := e.services.Admit(work.prepared.id, dispatch.ServiceOf(*work.prepared.webhook, false))
	switch {
	case failure != nil:
		w.retryIn(max(failure.RetryAfter, RetryStale))
		return
	case probe:
		tasks, posts = plan.Tasks.Open(posts[0].Requests, plan.Rule, now, newTraceID)
	}
	plan.Tasks, plan.Posts = tasks, posts
}

func newTraceID() string { return string(uuid.NewUUID()) }

// heldByCheaper reports whether a rule other than a webhook withholds a request: no service is called
// about it then.
func (w *evaluating) heldByCheaper(request rule.Request) bool {
	return slices.ContainsFunc(w.withheld[request.Key()], func(reason rule.Reason) bool { return reason.Kind != rule.KindWebhook })
}

// States returns the calls of a PodTransitionRule for its status.
func (r *Ruleset) States() []appsv1alpha1.RuleState {
	var states []appsv1alpha1.RuleState
	for _, rule := range r.View.Object.Spec.Rules {
		for _, eval := range r.Rules {
			if eval.prepared.spec.Name != rule.Name || eval.Calls == nil {
				continue
			}
			if status := eval.Calls.Tasks.Status(eval.env.Now); status != nil {
				states = append(states, appsv1alpha1.RuleState{Name: rule.Name, WebhookStatus: status})
			}
		}
	}
	return states
}

// IsUrgent reports whether a status write unblocks something: a call that may be sent only after it is
// recorded, an answer that may release pods, or a skipped call. Failed calls are not urgent.
func (r *Ruleset) IsUrgent() bool {
	return r.CallsChanged && slices.ContainsFunc(r.Rules, func(eval *Rule) bool {
		return eval.Calls != nil && (len(eval.Calls.Posts) > 0 || eval.Calls.skipped ||
			slices.ContainsFunc(eval.Calls.Results, func(result dispatch.Result) bool { return result.Failure == nil }))
	})
}

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

func webhookStatusOf(object *appsv1alpha1.PodTransitionRule, rule string) *appsv1alpha1.WebhookStatus {
	for _, state := range object.Status.RuleStates {
		if state.Name == rule {
			return state.WebhookStatus
		}
	}
	return nil
}
