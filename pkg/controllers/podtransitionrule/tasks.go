package podtransitionrule

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/rule"
	printable "github.com/podops-dev/podops/pkg/text"
	"github.com/podops-dev/podops/pkg/webhooktask"
	"github.com/podops-dev/podops/pkg/webhooktask/dispatch"
)

// callPlan is the state of the calls of one webhook rule after a round, and the calls to make.
type callPlan struct {
	rule  webhooktask.Rule
	tasks webhooktask.Tasks

	// stored is the state of the calls in the status.
	stored *appsv1alpha1.WebhookStatus

	// results are part of tasks, and not yet in the status.
	results []dispatch.Result

	// posts are sent once the status is written.
	posts []webhooktask.Post

	// unknown are names in answers that the calls did not contain.
	unknown []string

	// skipped reports whether calls were recorded as failed without being made, because the circuit breaker
	// of the service is open.
	skipped bool
}

// loadTasks reads the calls of a webhook rule from the status, and applies the results that have arrived
// since. It returns the requests with their tasks.
func (r *Reconciler) loadTasks(work *ruleWork, requests []rule.Request) []rule.Request {
	object, spec, now := work.ruleset.view.Object, work.prepared.spec, work.env.Now
	plan := &callPlan{
		rule:    webhooktask.RuleOf(object.Generation, *work.prepared.webhook, webhookRules(object)),
		stored:  webhookStatusOf(object, spec.Name),
		results: r.state.calls.Results(work.prepared.id),
	}
	plan.rule.AskAgain = r.askAgain
	work.calls = plan
	tasks := webhooktask.FromStatus(plan.stored)
	for _, result := range plan.results {
		var unknown []string
		tasks, unknown = result.Apply(tasks, plan.rule, now)
		plan.unknown = append(plan.unknown, unknown...)
	}
	plan.tasks = tasks.Interrupted(r.state.calls.IsKnown(work.prepared.id), now).Expire(plan.rule, now).Forget(requests, plan.rule, now)
	return plan.withTasks(requests, now)
}

// withTasks returns the requests with their tasks.
func (p *callPlan) withTasks(requests []rule.Request, now time.Time) []rule.Request {
	known := slices.Clone(requests)
	for i := range known {
		known[i].Task = p.tasks.Of(known[i], p.rule, now)
	}
	return known
}

// skipCalls records calls as failed without sending them while the circuit breaker of their
// service is open. That takes one status write instead of two. It takes the background slot,
// so a round does this for at most one PodTransitionRule. It returns the requests with their new
// tasks, and their verdicts.
func (r *Reconciler) skipCalls(
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
	failure := r.caller.CircuitOpen(id, service)
	if failure == nil {
		return requests, verdicts
	}
	if !w.turn.slot.take() {
		w.retryIn(retryBackground)
		later := slices.Clone(verdicts)
		for i := range later {
			later[i].Call = false
		}
		return requests, later
	}
	plan, now := work.calls, work.env.Now
	plan.skipped = true
	r.state.calls.Open(id)
	tasks, posts := plan.tasks.Open(wants, plan.rule, now, newTraceID)
	for _, post := range posts {
		r.caller.CountSkipped(id, service, failure)
		tasks = tasks.PostFailed(post.TraceID, dispatch.FailureOf(*failure), plan.rule, now)
	}
	plan.tasks = tasks
	known := plan.withTasks(requests, now)
	return known, r.verdicts(ctx, work, w, known)
}

// openCalls adds the calls about the requests that need one and that no cheaper rule withholds, and
// compares the calls with the stored status.
func (r *Reconciler) openCalls(w *evaluating) {
	for _, work := range w.rules {
		if work.calls == nil {
			continue
		}
		wants := slices.DeleteFunc(work.wants, w.heldByCheaper)
		r.open(work, w, wants)
		if !apiequality.Semantic.DeepEqual(work.calls.stored, work.calls.tasks.Status(work.env.Now)) {
			work.ruleset.callsChanged = true
		}
	}
}

// open adds calls about requests. While the circuit breaker is half-open, one call is added as its probe;
// without the probe none is, and the round is repeated when another probe may be admitted.
func (r *Reconciler) open(work *ruleWork, w *evaluating, wants []rule.Request) {
	plan, now := work.calls, work.env.Now
	tasks, posts := plan.tasks.Open(wants, plan.rule, now, newTraceID)
	if len(posts) == 0 {
		plan.tasks = tasks
		return
	}
	probe, failure := r.caller.Admit(work.prepared.id, dispatch.ServiceOf(*work.prepared.webhook, false))
	switch {
	case failure != nil:
		w.retryIn(max(failure.RetryAfter, retryStale))
		return
	case probe:
		tasks, posts = plan.tasks.Open(posts[0].Requests, plan.rule, now, newTraceID)
	}
	plan.tasks, plan.posts = tasks, posts
}

func newTraceID() string { return string(uuid.NewUUID()) }

// heldByCheaper reports whether a rule other than a webhook withholds a request: no service is called
// about it then.
func (w *evaluating) heldByCheaper(request rule.Request) bool {
	return slices.ContainsFunc(w.withheld[request.Key()], func(reason rule.Reason) bool { return reason.Kind != rule.KindWebhook })
}

// ruleStates returns the calls of a PodTransitionRule for its status.
func (e *rulesetEvaluation) ruleStates() []appsv1alpha1.RuleState {
	var states []appsv1alpha1.RuleState
	for _, rule := range e.view.Object.Spec.Rules {
		for _, eval := range e.rules {
			if eval.prepared.spec.Name != rule.Name || eval.calls == nil {
				continue
			}
			if status := eval.calls.tasks.Status(eval.env.Now); status != nil {
				states = append(states, appsv1alpha1.RuleState{Name: rule.Name, WebhookStatus: status})
			}
		}
	}
	return states
}

// isUrgent reports whether a status write unblocks something: a call that may be sent only after it is
// recorded, an answer that may release pods, or a skipped call. Failed calls are not urgent.
func (e *rulesetEvaluation) isUrgent() bool {
	return e.callsChanged && slices.ContainsFunc(e.rules, func(eval *ruleEvaluation) bool {
		return eval.calls != nil && (len(eval.calls.posts) > 0 || eval.calls.skipped ||
			slices.ContainsFunc(eval.calls.results, func(result dispatch.Result) bool { return result.Failure == nil }))
	})
}

// call makes the calls of an outcome. It returns how soon the next call is due; 0 for never.
func (r *Reconciler) call(ctx context.Context, snapshot snapshot, o outcome, stored map[string]bool) (wait time.Duration) {
	for _, view := range snapshot.Rules {
		ruleset := o.rulesets[view.Object.Name]
		r.callFor(ctx, snapshot, ruleset, stored[view.Object.Name] || !ruleset.callsChanged)
		for _, eval := range ruleset.rules {
			if eval.calls == nil {
				continue
			}
			if next := eval.calls.tasks.Next(eval.calls.rule, r.state.calls.LastPoll(eval.prepared.id), eval.env.Now); next > 0 {
				wait = minDelay(wait, max(next, retryStale))
			}
		}
	}
	return wait
}

// callFor makes the calls of a PodTransitionRule. A POST is only sent after its task is in the stored
// status; results that are in the status are dropped. Polls are of tasks in the stored status.
func (r *Reconciler) callFor(ctx context.Context, snapshot snapshot, ruleset *rulesetEvaluation, stored bool) {
	for _, eval := range ruleset.rules {
		if eval.calls == nil {
			continue
		}
		status := eval.calls.stored
		if stored {
			r.state.calls.Stored(eval.prepared.id, eval.calls.results)
			for _, post := range eval.calls.posts {
				call := dispatch.Call{
					Rule: eval.prepared.id, TraceID: post.TraceID, Service: dispatch.ServiceOf(*eval.prepared.webhook, false),
					Post: dispatch.PostOf(eval.prepared.id, eval.prepared.stage, eval.prepared.webhook.Parameters, post, func(request rule.Request) *corev1.Pod { return snapshot.Pod(request.Pod.UID) }),
				}
				r.state.calls.Begin(call)
				r.caller.Call(ctx, call)
			}
			r.recordUnknown(eval)
			status = eval.calls.tasks.Status(eval.env.Now)
		}
		r.poll(ctx, eval, status)
	}
}

// poll polls the tasks that are due and that the stored status has as polled.
func (r *Reconciler) poll(ctx context.Context, eval *ruleEvaluation, stored *appsv1alpha1.WebhookStatus) {
	id, polled := eval.prepared.id, polledIn(stored)
	for _, poll := range eval.calls.tasks.Due(eval.calls.rule, r.state.calls.LastPoll(id), eval.env.Now) {
		if !polled[poll.TraceID] {
			continue
		}
		call := dispatch.Call{Rule: id, TraceID: poll.TraceID, Service: dispatch.ServiceOf(*eval.prepared.webhook, true), Poll: &poll}
		r.state.calls.Begin(call)
		r.caller.Call(ctx, call)
	}
	maps.Copy(polled, polledIn(eval.calls.tasks.Status(eval.env.Now)))
	r.state.calls.KeepPolls(id, polled)
}

// polledIn returns the trace ids of the tasks that are polled in a status.
func polledIn(status *appsv1alpha1.WebhookStatus) map[string]bool {
	polled := map[string]bool{}
	if status == nil {
		return polled
	}
	for _, task := range status.TaskStates {
		if task.Phase == appsv1alpha1.TaskPolling {
			polled[task.TraceID] = true
		}
	}
	return polled
}

// recordUnknown records that an answer names pods that the call did not contain: once, when the answer is
// in the stored status.
func (r *Reconciler) recordUnknown(eval *ruleEvaluation) {
	names := eval.calls.unknown
	if len(names) == 0 {
		return
	}
	slices.Sort(names)
	names = slices.Compact(names)
	more := ""
	if len(names) > rule.MaxBlockingPods {
		more = fmt.Sprintf(" and %d more", len(names)-rule.MaxBlockingPods)
		names = names[:rule.MaxBlockingPods]
	}
	for i, name := range names {
		names[i] = printable.Line(name, validation.DNS1123SubdomainMaxLength)
	}
	r.recorder.Eventf(eval.ruleset.view.Object, nil, corev1.EventTypeWarning, EventUnknownPods, "Call",
		"rule %s: the service named pods that it was not asked about, which approves nothing: %s%s",
		eval.prepared.spec.Name, strings.Join(names, ", "), more)
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
