package evaluation

import (
	"context"
	"slices"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/uuid"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/rule"
	"github.com/podops-dev/podops/pkg/webhookclient"
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

	// wants are the requests about which the rule needs an answer of its service.
	wants []rule.Request

	// skipped reports whether calls were recorded as failed without being made, because the circuit breaker
	// of the service is open.
	skipped bool
}

// Calls are what this process knows about the calls of the webhook rules of a namespace.
type Calls struct {
	Rules map[rule.RuleID]KnownCalls

	// MaySkip reports whether one rule may record calls as failed without making them: that is a background write.
	MaySkip bool
}

// KnownCalls are what this process knows about the calls of one rule.
type KnownCalls struct {
	// Results are the results that the status does not have yet.
	Results []dispatch.Result

	// Posts are the trace ids of the POSTs under way, and of those with a result that the status does not have yet.
	Posts map[string]bool

	// CircuitOpen is the failure that a POST would have because the circuit breaker of the service is open; nil
	// when the POST would be made.
	CircuitOpen *webhookclient.Failure
}

// SkippedCalls are calls of a rule that were recorded as failed without being made.
type SkippedCalls struct {
	Rule    *Rule
	Calls   int
	Failure *webhookclient.Failure
}

// Webhooks returns the services of the webhook rules, by rule.
func (s Snapshot) Webhooks() map[rule.RuleID]dispatch.Service {
	services := map[rule.RuleID]dispatch.Service{}
	for _, rules := range s.prepared {
		for _, prepared := range rules {
			if prepared.webhook != nil && prepared.err == nil {
				services[prepared.id] = dispatch.ServiceOf(*prepared.webhook, false)
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
		Rule:    webhooktask.RuleOf(object.Generation, *eval.prepared.webhook, webhookRules(object)),
		Stored:  webhookStatusOf(object, spec.Name),
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

// withTasks returns the requests with their tasks.
func (p *CallPlan) withTasks(requests []rule.Request, now time.Time) []rule.Request {
	known := slices.Clone(requests)
	for i := range known {
		known[i].Task = p.Tasks.Of(known[i], p.Rule, now)
	}
	return known
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
		tasks = tasks.PostFailed(post.TraceID, dispatch.FailureOf(*failure), plan.Rule, now)
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
			probe, failure := admit(eval.ID(), dispatch.ServiceOf(*eval.Webhook(), false))
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

// heldByCheaper reports whether a rule other than a webhook withholds a request: no service is called
// about it then.
func (e *Evaluation) heldByCheaper(request rule.Request) bool {
	return slices.ContainsFunc(e.withheld[request.Key()], func(reason rule.Reason) bool { return reason.Kind != rule.KindWebhook })
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
