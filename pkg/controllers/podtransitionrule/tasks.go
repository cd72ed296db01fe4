package podtransitionrule

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/uuid"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/approval"
	"github.com/podops-dev/podops/pkg/facts"
	"github.com/podops-dev/podops/pkg/policy"
	"github.com/podops-dev/podops/pkg/remote"
)

// taskDecision is what a round makes of the calls of one webhook rule.
type taskDecision struct {
	rule  approval.Rule
	tasks approval.Tasks

	// stored is what status says.
	stored *appsv1alpha1.WebhookStatus

	// results are taken in, and not yet in status.
	results []Result

	// wants are the requests that the rule wants the service to be called about.
	wants []policy.Request

	// posts may be sent once status is written.
	posts []approval.Post

	// unknown are names in answers that were not asked about.
	unknown []string

	// refused: calls were not made, since the service is left alone.
	refused bool
}

// takeIn reads the calls of a webhook rule from status and takes in what came of them
// since. It fills in how far the service has come with each request.
func (r *Reconciler) takeIn(said *ruleDecision, requests []policy.Request) []policy.Request {
	object, spec, now := said.object.view.Object, said.prepared.spec, said.around.Now
	d := &taskDecision{
		rule:    approval.RuleOf(object.Generation, *said.prepared.webhook, webhookRules(object)),
		stored:  webhookStatusOf(object, spec.Name),
		results: r.calls.of(said.prepared.id),
	}
	said.calls = d
	tasks := approval.FromStatus(d.stored)
	for _, result := range d.results {
		var unknown []string
		tasks, unknown = takenIn(tasks, result, d.rule, said)
		d.unknown = append(d.unknown, unknown...)
	}
	tasks = tasks.Interrupted(r.calls.knows, now).Expire(d.rule, now).Forget(requests, d.rule, now)
	d.tasks = tasks
	known := slices.Clone(requests)
	for i := range known {
		known[i].Task = tasks.Of(known[i], d.rule, now)
	}
	return known
}

// takenIn is the state after one result, and the names in it that were not asked about.
func takenIn(tasks approval.Tasks, result Result, rule approval.Rule, said *ruleDecision) (approval.Tasks, []string) {
	now, traceID := said.around.Now, result.Call.TraceID
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

func failureOf(failure remote.Failure) approval.Failure {
	return approval.Failure{Class: string(failure.Class), Message: failure.Message, RetryAfter: failure.RetryAfter}
}

// refused ends calls that would not be made, because the service is left alone, before they
// have begun: for one write of status, where a call costs two. The pods that wait for such a
// service may be many, and nothing hurries, so only some objects of a round have their turn.
// It returns the requests with what became of them, and their verdicts.
func (r *Reconciler) refused(
	ctx context.Context, said *ruleDecision, d *decision, requests []policy.Request, verdicts []policy.Verdict,
) ([]policy.Request, []policy.Verdict) {
	var wants []policy.Request
	for i, verdict := range verdicts {
		if verdict.Call && !d.heldByCheaper(requests[i]) {
			wants = append(wants, requests[i])
		}
	}
	service := serviceOf(*said.prepared.webhook, false)
	failure := r.caller.LeftAlone(service)
	if len(wants) == 0 || failure == nil {
		return requests, verdicts
	}
	if !r.rest.TryAcquire(1) {
		d.retry = sooner(d.retry, retryRest)
		later := slices.Clone(verdicts)
		for i := range later {
			later[i].Call = false
		}
		return requests, later
	}
	d.refused++
	said.calls.refused = true
	rule, now := said.calls.rule, said.around.Now
	tasks, posts := said.calls.tasks.Open(wants, rule, now, newTraceID)
	for _, post := range posts {
		r.caller.Refused(said.prepared.id, service, failure)
		tasks = tasks.PostFailed(post.TraceID, failureOf(*failure), rule, now)
	}
	said.calls.tasks = tasks
	known := slices.Clone(requests)
	for i := range known {
		known[i].Task = tasks.Of(known[i], rule, now)
	}
	return known, r.verdicts(ctx, said, d, known)
}

func postAnswer(answer remote.PostAnswer) approval.PostAnswer {
	return approval.PostAnswer{
		Success: answer.Success, Message: answer.Message, FinishedNames: answer.FinishedNames,
		Poll: answer.Poll, Async: answer.Async, TaskID: answer.TaskID, TraceID: answer.TraceID,
	}
}

func pollAnswer(answer remote.PollAnswer) approval.PollAnswer {
	return approval.PollAnswer{
		Success: answer.Success, Finished: answer.Finished, Stop: answer.Stop,
		Message: answer.Message, FinishedNames: answer.FinishedNames,
	}
}

// openCalls begins calls about the requests that need one and that no cheaper rule holds
// back, and notes when something of a call is due.
func (r *Reconciler) openCalls(d *decision) {
	for _, object := range d.objects {
		for _, said := range object.rules {
			if said.calls == nil {
				continue
			}
			wants := slices.DeleteFunc(said.calls.wants, func(request policy.Request) bool { return d.heldByCheaper(request) })
			said.calls.tasks, said.calls.posts = said.calls.tasks.Open(wants, said.calls.rule, said.around.Now, newTraceID)
			_, next := said.calls.tasks.Due(said.calls.rule, r.calls.lastPoll, said.around.Now)
			d.retry = sooner(d.retry, next)
		}
	}
}

func newTraceID() string { return string(uuid.NewUUID()) }

// heldByCheaper: a rule other than a webhook holds the request back, so nobody need be
// called about it yet.
func (d *decision) heldByCheaper(request policy.Request) bool {
	return slices.ContainsFunc(d.withheld[request.Key()], func(reason policy.Reason) bool { return reason.Kind != policy.KindWebhook })
}

// ruleStates are the calls of an object, as status has them.
func (o *objectDecision) ruleStates() []appsv1alpha1.RuleState {
	var states []appsv1alpha1.RuleState
	for _, rule := range o.view.Object.Spec.Rules {
		for _, said := range o.rules {
			if said.prepared.spec.Name != rule.Name || said.calls == nil {
				continue
			}
			if status := said.calls.tasks.Status(said.around.Now); status != nil {
				states = append(states, appsv1alpha1.RuleState{Name: rule.Name, WebhookStatus: status})
			}
		}
	}
	return states
}

// isUrgent: somebody waits for the status. A call is made once it is there, and an answer
// has come; that one was not made is written down with its round. Calls that failed are
// not urgent: they may be many at once, and their pods wait anyway.
func (o *objectDecision) isUrgent() bool {
	return o.callsHaveChanged() && slices.ContainsFunc(o.rules, func(said *ruleDecision) bool {
		return said.calls != nil && (len(said.calls.posts) > 0 || said.calls.refused ||
			slices.ContainsFunc(said.calls.results, func(result Result) bool { return result.Failure == nil }))
	})
}

// callsHaveChanged: status does not have the calls as they are.
func (o *objectDecision) callsHaveChanged() bool {
	if o.changed == nil {
		o.changed = new(slices.ContainsFunc(o.rules, func(said *ruleDecision) bool {
			return said.calls != nil && !apiequality.Semantic.DeepEqual(said.calls.stored, said.calls.tasks.Status(said.around.Now))
		}))
	}
	return *o.changed
}

// send makes the calls of a namespace.
func (r *Reconciler) send(ctx context.Context, view facts.View, d *decision, did written) {
	for _, rule := range view.Rules {
		object := d.objects[rule.Object.Name]
		r.sendOf(ctx, view, object, did.statuses[rule.Object.Name] || !object.callsHaveChanged())
	}
	r.calls.keep(view.Namespace, func(rule policy.RuleID) bool { said, ok := d.rules[rule]; return ok && said.calls != nil })
}

// sendOf makes the calls of an object. Posts are only sent when status, which has them, is
// written; results that are in status are forgotten. Polls are of tasks that status had
// before.
func (r *Reconciler) sendOf(ctx context.Context, view facts.View, object *objectDecision, written bool) {
	for _, said := range object.rules {
		if said.calls == nil {
			continue
		}
		if written {
			r.calls.written(view.Namespace, said.calls.results)
			for _, post := range said.calls.posts {
				call := Call{
					Rule: said.prepared.id, TraceID: post.TraceID, Service: serviceOf(*said.prepared.webhook, false),
					Post: postOf(said.prepared, post, func(request policy.Request) *corev1.Pod { return view.Pod(request.Pod.UID) }),
				}
				r.calls.begin(call)
				r.caller.Call(ctx, call)
			}
			r.tellUnknown(said)
		}
		r.poll(ctx, said)
	}
}

// poll asks about the tasks that are due and that status has as polled.
func (r *Reconciler) poll(ctx context.Context, said *ruleDecision) {
	before, polled := map[string]bool{}, map[string]bool{}
	if said.calls.stored != nil {
		for _, task := range said.calls.stored.TaskStates {
			before[task.TraceID] = true
			polled[task.TraceID] = task.Phase == appsv1alpha1.TaskPolling
		}
	}
	polls, _ := said.calls.tasks.Due(said.calls.rule, r.calls.lastPoll, said.around.Now)
	due := map[string]bool{}
	for _, poll := range polls {
		due[poll.TraceID] = true
		if !polled[poll.TraceID] {
			continue
		}
		call := Call{
			Rule: said.prepared.id, TraceID: poll.TraceID, Service: serviceOf(*said.prepared.webhook, true), Poll: &poll,
		}
		r.calls.begin(call)
		r.caller.Call(ctx, call)
	}
	if status := said.calls.tasks.Status(said.around.Now); status != nil {
		for _, task := range status.TaskStates {
			due[task.TraceID] = due[task.TraceID] || task.Phase == appsv1alpha1.TaskPolling
		}
	}
	r.calls.keepPolls(due, before)
}

// Deliver takes in what came of a call, and wakes the namespace.
func (r *Reconciler) Deliver(result Result) {
	r.calls.deliver(result, r.clock.Now())
	r.wake(result.Call.Rule.Object.Namespace)
}

// tellUnknown records that a service named pods that it was not asked about: once, when
// the answer is in status.
func (r *Reconciler) tellUnknown(said *ruleDecision) {
	names := said.calls.unknown
	if len(names) == 0 {
		return
	}
	slices.Sort(names)
	names = slices.Compact(names)
	more := ""
	if len(names) > policy.MaxBlockingPods {
		more = fmt.Sprintf(" and %d more", len(names)-policy.MaxBlockingPods)
		names = names[:policy.MaxBlockingPods]
	}
	r.recorder.Eventf(said.object.view.Object, nil, corev1.EventTypeWarning, EventUnknownPods, "Call",
		"rule %s: the service named pods that it was not asked about, which approves nothing: %s%s",
		said.prepared.spec.Name, strings.Join(names, ", "), more)
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
