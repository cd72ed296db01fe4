package podtransitionrule

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/podindex"
	"github.com/podops-dev/podops/pkg/rule"
	printable "github.com/podops-dev/podops/pkg/text"
	"github.com/podops-dev/podops/pkg/webhookclient"
	"github.com/podops-dev/podops/pkg/webhooktask"
)

// taskDecision is what a round makes of the calls of one webhook rule.
type taskDecision struct {
	rule  webhooktask.Rule
	tasks webhooktask.Tasks

	// stored is what status says.
	stored *appsv1alpha1.WebhookStatus

	// results are taken in, and not yet in status.
	results []Result

	// wants are the requests that the rule wants the service to be called about.
	wants []rule.Request

	// posts may be sent once status is written.
	posts []webhooktask.Post

	// unknown are names in answers that were not asked about.
	unknown []string

	// skipped: calls were not made, since the circuit breaker of the service is open.
	skipped bool
}

// loadTasks reads the calls of a webhook rule from status and takes in what came of them
// since. It fills in how far the service has come with each request.
func (r *Reconciler) loadTasks(eval *ruleEvaluation, requests []rule.Request) []rule.Request {
	object, spec, now := eval.object.view.Object, eval.prepared.spec, eval.env.Now
	d := &taskDecision{
		rule:    webhooktask.RuleOf(object.Generation, *eval.prepared.webhook, webhookRules(object)),
		stored:  webhookStatusOf(object, spec.Name),
		results: r.calls.of(eval.prepared.id),
	}
	d.rule.AskAgain = r.askAgain
	eval.calls = d
	tasks := webhooktask.FromStatus(d.stored)
	for _, result := range d.results {
		var unknown []string
		tasks, unknown = applyResult(tasks, result, d.rule, eval)
		d.unknown = append(d.unknown, unknown...)
	}
	tasks = tasks.Interrupted(r.calls.knows(eval.prepared.id), now).Expire(d.rule, now).Forget(requests, d.rule, now)
	d.tasks = tasks
	known := slices.Clone(requests)
	for i := range known {
		known[i].Task = tasks.Of(known[i], d.rule, now)
	}
	return known
}

// applyResult is the state after one result, and the names in it that were not asked about.
func applyResult(tasks webhooktask.Tasks, result Result, rule webhooktask.Rule, eval *ruleEvaluation) (webhooktask.Tasks, []string) {
	now, traceID := eval.env.Now, result.Call.TraceID
	switch {
	case result.Failure != nil:
		failure := failureOf(*result.Failure)
		if result.Call.Post != nil {
			return tasks.PostFailed(traceID, failure, rule, now), nil
		}
		return tasks.PollFailed(traceID, failure, rule, now), nil
	case result.Post != nil:
		return tasks.Posted(traceID, postAnswer(*result.Post), rule, now)
	case result.Poll != nil:
		return tasks.Polled(traceID, pollAnswer(*result.Poll), rule, now)
	}
	return tasks, nil
}

func failureOf(failure webhookclient.Failure) webhooktask.Failure {
	class, message := failure.Shown()
	return webhooktask.Failure{Class: string(class), Message: message, RetryAfter: failure.RetryAfter}
}

// skipCalls records calls as failed without sending them while the circuit breaker of their
// service is open. That takes one write of status instead of two. It takes the background slot,
// so a round does this for at most one PodTransitionRule. It returns the requests with their new
// tasks, and their verdicts.
func (r *Reconciler) skipCalls(
	ctx context.Context, eval *ruleEvaluation, d *decision, requests []rule.Request, verdicts []rule.Verdict,
) ([]rule.Request, []rule.Verdict) {
	var wants []rule.Request
	for i, verdict := range verdicts {
		if verdict.Call && !d.heldByCheaper(requests[i]) {
			wants = append(wants, requests[i])
		}
	}
	if len(wants) == 0 {
		return requests, verdicts
	}
	service := serviceOf(*eval.prepared.webhook, false)
	failure := r.caller.CircuitOpen(eval.prepared.id, service)
	if failure == nil {
		return requests, verdicts
	}
	if !r.background.TryAcquire(1) {
		d.retry = minDelay(d.retry, retryBackground)
		later := slices.Clone(verdicts)
		for i := range later {
			later[i].Call = false
		}
		return requests, later
	}
	d.skipped++
	eval.calls.skipped = true
	r.calls.open(eval.prepared.id)
	rule, now := eval.calls.rule, eval.env.Now
	tasks, posts := eval.calls.tasks.Open(wants, rule, now, newTraceID)
	for _, post := range posts {
		r.caller.CountSkipped(eval.prepared.id, service, failure)
		tasks = tasks.PostFailed(post.TraceID, failureOf(*failure), rule, now)
	}
	eval.calls.tasks = tasks
	known := slices.Clone(requests)
	for i := range known {
		known[i].Task = tasks.Of(known[i], rule, now)
	}
	return known, r.verdicts(ctx, eval, d, known)
}

func postAnswer(answer webhookclient.PostAnswer) webhooktask.PostAnswer {
	return webhooktask.PostAnswer{
		Success: answer.Success, Message: answer.Message, FinishedNames: answer.FinishedNames,
		Poll: answer.Poll, Async: answer.Async, TaskID: answer.TaskID, TraceID: answer.TraceID,
	}
}

func pollAnswer(answer webhookclient.PollAnswer) webhooktask.PollAnswer {
	return webhooktask.PollAnswer{
		Success: answer.Success, Finished: answer.Finished, Stop: answer.Stop,
		Message: answer.Message, FinishedNames: answer.FinishedNames,
	}
}

// openCalls begins calls about the requests that need one and that no cheaper rule holds
// back.
func (r *Reconciler) openCalls(d *decision) {
	for _, object := range d.objects {
		for _, eval := range object.rules {
			if eval.calls == nil {
				continue
			}
			wants := slices.DeleteFunc(eval.calls.wants, func(request rule.Request) bool { return d.heldByCheaper(request) })
			r.open(eval, d, wants)
		}
	}
}

// open begins calls about requests. While the circuit breaker is half-open, one call is begun as
// its probe; without the probe none is, and the round is repeated when there may be another one.
func (r *Reconciler) open(eval *ruleEvaluation, d *decision, wants []rule.Request) {
	calls, now := eval.calls, eval.env.Now
	tasks, posts := calls.tasks.Open(wants, calls.rule, now, newTraceID)
	if len(posts) == 0 {
		calls.tasks = tasks
		return
	}
	probe, failure := r.caller.Admit(eval.prepared.id, serviceOf(*eval.prepared.webhook, false))
	switch {
	case failure != nil:
		d.retry = minDelay(d.retry, max(failure.RetryAfter, retryStale))
		return
	case probe:
		tasks, posts = calls.tasks.Open(posts[0].Requests, calls.rule, now, newTraceID)
	}
	calls.tasks, calls.posts = tasks, posts
}

func newTraceID() string { return string(uuid.NewUUID()) }

// heldByCheaper: a rule other than a webhook holds the request back, so nobody need be
// called about it yet.
func (d *decision) heldByCheaper(request rule.Request) bool {
	return slices.ContainsFunc(d.withheld[request.Key()], func(reason rule.Reason) bool { return reason.Kind != rule.KindWebhook })
}

// ruleStates are the calls of an object, as status has them.
func (o *rulesetEvaluation) ruleStates() []appsv1alpha1.RuleState {
	var states []appsv1alpha1.RuleState
	for _, rule := range o.view.Object.Spec.Rules {
		for _, eval := range o.rules {
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

// isUrgent: somebody waits for the status. A call is made once it is there, and an answer
// has come; that one was skipped is written down with its round. Calls that failed are
// not urgent: they may be many at once, and their pods wait anyway.
func (o *rulesetEvaluation) isUrgent() bool {
	return o.callsHaveChanged() && slices.ContainsFunc(o.rules, func(eval *ruleEvaluation) bool {
		return eval.calls != nil && (len(eval.calls.posts) > 0 || eval.calls.skipped ||
			slices.ContainsFunc(eval.calls.results, func(result Result) bool { return result.Failure == nil }))
	})
}

// callsHaveChanged: status does not have the calls as they are.
func (o *rulesetEvaluation) callsHaveChanged() bool {
	if o.changed == nil {
		o.changed = new(slices.ContainsFunc(o.rules, func(eval *ruleEvaluation) bool {
			return eval.calls != nil && !apiequality.Semantic.DeepEqual(eval.calls.stored, eval.calls.tasks.Status(eval.env.Now))
		}))
	}
	return *o.changed
}

// send makes the calls of a namespace, forgets those of rules that are gone, and notes when the next
// call is due.
func (r *Reconciler) send(ctx context.Context, view podindex.Snapshot, d *decision, did written) {
	for _, rule := range view.Rules {
		object := d.objects[rule.Object.Name]
		r.sendOf(ctx, view, object, did.statuses[rule.Object.Name] || !object.callsHaveChanged())
		for _, eval := range object.rules {
			if eval.calls == nil {
				continue
			}
			if next := eval.calls.tasks.Next(eval.calls.rule, r.calls.lastPoll(eval.prepared.id), eval.env.Now); next > 0 {
				d.retry = minDelay(d.retry, max(next, retryStale))
			}
		}
	}
	gone := r.calls.keep(view.Namespace, func(rule rule.RuleID) bool {
		eval, has := d.rules[rule]
		return has && eval.prepared.webhook != nil
	})
	for _, rule := range gone {
		r.caller.Forget(rule)
	}
}

// sendOf makes the calls of an object. Posts are only sent when status, which has them, is
// written; results that are in status are forgotten. Polls are of tasks that status has.
func (r *Reconciler) sendOf(ctx context.Context, view podindex.Snapshot, object *rulesetEvaluation, written bool) {
	for _, eval := range object.rules {
		if eval.calls == nil {
			continue
		}
		stored := eval.calls.stored
		if written {
			r.calls.written(eval.prepared.id, eval.calls.results)
			for _, post := range eval.calls.posts {
				call := Call{
					Rule: eval.prepared.id, TraceID: post.TraceID, Service: serviceOf(*eval.prepared.webhook, false),
					Post: postOf(eval.prepared, post, func(request rule.Request) *corev1.Pod { return view.Pod(request.Pod.UID) }),
				}
				r.calls.begin(call)
				r.caller.Call(ctx, call)
			}
			r.recordUnknown(eval)
			stored = eval.calls.tasks.Status(eval.env.Now)
		}
		r.poll(ctx, eval, stored)
	}
}

// poll polls the tasks that are due and that status, as it is stored, has as polled.
func (r *Reconciler) poll(ctx context.Context, eval *ruleEvaluation, stored *appsv1alpha1.WebhookStatus) {
	id, polled := eval.prepared.id, polledIn(stored)
	for _, poll := range eval.calls.tasks.Due(eval.calls.rule, r.calls.lastPoll(id), eval.env.Now) {
		if !polled[poll.TraceID] {
			continue
		}
		call := Call{Rule: id, TraceID: poll.TraceID, Service: serviceOf(*eval.prepared.webhook, true), Poll: &poll}
		r.calls.begin(call)
		r.caller.Call(ctx, call)
	}
	maps.Copy(polled, polledIn(eval.calls.tasks.Status(eval.env.Now)))
	r.calls.keepPolls(id, polled)
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

// Deliver takes in what came of a call, and wakes the namespace.
func (r *Reconciler) Deliver(result Result) {
	r.calls.deliver(result, r.clock.Now())
	r.wake(result.Call.Rule.Object.Namespace)
}

// recordUnknown records that a service named pods that it was not asked about: once, when
// the answer is in status.
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
	r.recorder.Eventf(eval.object.view.Object, nil, corev1.EventTypeWarning, EventUnknownPods, "Call",
		"rule %s: the service named pods that it was not asked about, which approves nothing: %s%s",
		eval.prepared.spec.Name, strings.Join(names, ", "), more)
}

// webhookRules is how many rules of an object share the room for calls.
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
