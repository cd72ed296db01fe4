package podtransitionrule

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/tracing"
	"github.com/podops-dev/podops/pkg/engine/evaluation"
	"github.com/podops-dev/podops/pkg/runtime/backoff"
	printable "github.com/podops-dev/podops/pkg/runtime/text"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask/dispatch"
)

// knownCalls returns the webhook calls of a namespace. It takes the background slot if calls may have to be
// skipped.
func (r *Reconciler) knownCalls(turn *turn, snapshot snapshot) evaluation.Calls {
	calls := evaluation.Calls{Rules: map[rule.RuleID]evaluation.KnownCalls{}}
	for id, service := range snapshot.Webhooks() {
		known := evaluation.KnownCalls{Results: r.state.calls.Results(id), Posts: r.state.calls.Posts(id), CircuitOpen: r.caller.CircuitOpen(id, service)}
		calls.Rules[id], calls.MaySkip = known, calls.MaySkip || known.CircuitOpen != nil && turn.slot.take()
	}
	return calls
}

// countSkipped counts the calls that were skipped, for which the round keeps the background slot.
func (r *Reconciler) countSkipped(turn *turn, evaluated evaluation.Evaluation) {
	if len(evaluated.Skipped) == 0 {
		turn.slot.release()
	}
	for _, skipped := range evaluated.Skipped {
		r.state.calls.Open(skipped.Rule.ID())
		for range skipped.Calls {
			r.caller.CountSkipped(skipped.Rule.ID(), dispatch.NewService(*skipped.Rule.Webhook(), false), skipped.Failure)
		}
	}
}

// call makes the calls of an outcome. It returns how soon the next call is due; 0 for never.
func (r *Reconciler) call(ctx context.Context, snapshot snapshot, o evaluation.Outcome, stored map[string]bool) (wait time.Duration) {
	for _, view := range snapshot.Rules {
		ruleset := o.Rulesets[view.Object.Name]
		r.callFor(ctx, snapshot, ruleset, stored[view.Object.Name] || !ruleset.CallsChanged)
		for _, eval := range ruleset.Rules {
			if eval.Calls == nil {
				continue
			}
			if next := eval.Calls.Tasks.Next(eval.Calls.Rule, r.state.calls.LastPoll(eval.ID()), eval.Now()); next > 0 {
				wait = backoff.MinDelay(wait, max(next, evaluation.RetryStale))
			}
		}
	}
	return wait
}

// callFor makes the calls of a PodTransitionRule. A POST is only sent after its task is in the stored
// status; results that are in the status are dropped. Polls are of tasks in the stored status.
func (r *Reconciler) callFor(ctx context.Context, snapshot snapshot, ruleset *evaluation.Ruleset, stored bool) {
	for _, eval := range ruleset.Rules {
		if eval.Calls == nil {
			continue
		}
		status := eval.Calls.Stored
		if stored {
			r.state.calls.Stored(eval.ID(), eval.Calls.Results)
			for _, post := range eval.Calls.Posts {
				object := func(request rule.Request) *corev1.Pod { return snapshot.Pod(request.Pod.UID) }
				call := dispatch.Call{
					Rule: eval.ID(), TraceID: post.TraceID, Service: dispatch.NewService(*eval.Webhook(), false),
					Post:  dispatch.NewPost(eval.ID(), eval.Stage(), eval.Webhook().Parameters, post, object),
					Stage: eval.Stage(), Of: r.tracedIn(post.Requests),
				}
				r.state.calls.Begin(call)
				r.caller.Call(ctx, call)
			}
			r.recordUnknown(eval)
			status = eval.Calls.Tasks.Status(eval.Now())
		}
		r.poll(ctx, snapshot, eval, status)
	}
}

// poll polls the tasks that are due and that the stored status has as polled.
func (r *Reconciler) poll(ctx context.Context, snapshot snapshot, eval *evaluation.Rule, stored *appsv1alpha1.WebhookStatus) {
	id, polled := eval.ID(), polledIn(stored)
	for _, poll := range eval.Calls.Tasks.Due(eval.Calls.Rule, r.state.calls.LastPoll(id), eval.Now()) {
		if !polled[poll.TraceID] {
			continue
		}
		call := dispatch.Call{
			Rule: id, TraceID: poll.TraceID, Service: dispatch.NewService(*eval.Webhook(), true), Poll: &poll,
			Stage: eval.Stage(), Of: r.tracedLifecycles(snapshot, poll.Pods),
		}
		r.state.calls.Begin(call)
		r.caller.Call(ctx, call)
	}
	maps.Copy(polled, polledIn(eval.Calls.Tasks.Status(eval.Now())))
	r.state.calls.KeepPolls(id, polled)
}

// tracedIn returns the lifecycles of requests whose traces are exported.
func (r *Reconciler) tracedIn(requests []rule.Request) []tracing.Lifecycle {
	if r.traced == nil {
		return nil
	}
	return r.traced(requests)
}

// tracedLifecycles returns the lifecycles of a task's pods that still wait and whose traces are exported.
func (r *Reconciler) tracedLifecycles(snapshot snapshot, pods []appsv1alpha1.TaskPod) []tracing.Lifecycle {
	if r.traced == nil {
		return nil
	}
	var requests []rule.Request
	for _, pod := range pods {
		if object := snapshot.Pod(pod.UID); object != nil {
			fact := &rule.PodFact{Namespace: object.Namespace, Name: object.Name, UID: object.UID, Labels: object.Labels}
			requests = append(requests, rule.Request{Pod: fact, ID: pod.ID})
		}
	}
	return r.traced(requests)
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
func (r *Reconciler) recordUnknown(eval *evaluation.Rule) {
	names := eval.Calls.Unknown
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
	r.recorder.Eventf(eval.Object(), nil, corev1.EventTypeWarning, EventUnknownPods, "Call",
		"rule %s: the answer names pods that the call did not contain, which approves nothing: %s%s",
		eval.ID().Rule, strings.Join(names, ", "), more)
}
