package podtransitionrule

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/approval"
	"github.com/podops-dev/podops/pkg/podfields"
	"github.com/podops-dev/podops/pkg/policy"
	"github.com/podops-dev/podops/pkg/remote"
)

// Call is one HTTP request of a webhook rule. Exactly one of Post and Poll is set.
type Call struct {
	Rule    policy.RuleID
	TraceID string
	Service Service
	Post    *remote.PostRequest
	Poll    *approval.Poll
}

// Service is where a rule says that its calls go.
type Service struct {
	URL      string
	CABundle string

	// Secret in the namespace of the rule that has the credentials; empty for none.
	Secret string
}

// Result is what came of a Call: an answer of its kind, or a failure.
type Result struct {
	Call    Call
	Post    *remote.PostAnswer
	Poll    *remote.PollAnswer
	Failure *remote.Failure
}

// Caller makes calls outside of rounds, and hands each result to Reconciler.Deliver.
type Caller interface {
	// Call starts a call. It never blocks; what cannot be started is delivered as a
	// failure.
	Call(ctx context.Context, call Call)

	// LeftAlone says why a POST to a service would not be made now; nil when it would.
	LeftAlone(service Service) *remote.Failure

	// Refused counts a call of a rule that was not made because of that.
	Refused(rule policy.RuleID, service Service, failure *remote.Failure)

	// Forget drops what is remembered of a rule that is gone.
	Forget(rule policy.RuleID)
}

// callbook is what rounds know of the calls of this process. It is lost with the process:
// what must not be lost is in status.
type callbook struct {
	mu sync.Mutex

	// results that are not yet in status, by namespace.
	results map[string][]Result

	// posts under way, by trace id.
	posts map[string]bool

	// polls by trace id.
	polls map[string]approval.LastPoll
}

func newCallbook() *callbook {
	return &callbook{results: map[string][]Result{}, posts: map[string]bool{}, polls: map[string]approval.LastPoll{}}
}

// maxPolls bounds what is remembered of polls; of a task that was forgotten the next poll
// comes at once.
const maxPolls = 10000

// begin notes that a call is under way.
func (b *callbook) begin(call Call) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.polls) >= maxPolls {
		maps.DeleteFunc(b.polls, func(_ string, poll approval.LastPoll) bool { return !poll.Running })
	}
	if call.Post != nil {
		b.posts[call.TraceID] = true
		return
	}
	last := b.polls[call.TraceID]
	last.Running = true
	b.polls[call.TraceID] = last
}

// deliver notes what came of a call.
func (b *callbook) deliver(result Result, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	namespace := result.Call.Rule.Object.Namespace
	b.results[namespace] = append(b.results[namespace], result)
	if result.Call.Poll == nil {
		return // the post stays known until its result is in status
	}
	last := approval.LastPoll{At: now}
	if result.Failure != nil {
		last.Failures, last.RetryAfter = b.polls[result.Call.TraceID].Failures+1, result.Failure.RetryAfter
	}
	b.polls[result.Call.TraceID] = last
}

// of are the results of one rule that are not yet in status.
func (b *callbook) of(rule policy.RuleID) []Result {
	b.mu.Lock()
	defer b.mu.Unlock()
	var results []Result
	for _, result := range b.results[rule.Object.Namespace] {
		if result.Call.Rule == rule {
			results = append(results, result)
		}
	}
	return results
}

// written drops results, which are in status now.
func (b *callbook) written(namespace string, written []Result) {
	b.mu.Lock()
	defer b.mu.Unlock()
	drop := func(result Result) bool {
		return slices.ContainsFunc(written, func(one Result) bool {
			return one.Call.TraceID == result.Call.TraceID && one.Post == result.Post && one.Poll == result.Poll && one.Failure == result.Failure
		})
	}
	b.results[namespace] = slices.DeleteFunc(b.results[namespace], drop)
	if len(b.results[namespace]) == 0 {
		delete(b.results, namespace)
	}
	for _, result := range written {
		if result.Call.Post != nil {
			delete(b.posts, result.Call.TraceID)
		}
	}
}

// keep drops the results of rules of a namespace that are gone.
func (b *callbook) keep(namespace string, present func(policy.RuleID) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, result := range b.results[namespace] {
		if !present(result.Call.Rule) {
			delete(b.posts, result.Call.TraceID)
			delete(b.polls, result.Call.TraceID)
		}
	}
	b.results[namespace] = slices.DeleteFunc(b.results[namespace], func(result Result) bool { return !present(result.Call.Rule) })
	if len(b.results[namespace]) == 0 {
		delete(b.results, namespace)
	}
}

// knows says whether a post is under way in this process, or its result in hand.
func (b *callbook) knows(traceID string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.posts[traceID]
}

func (b *callbook) lastPoll(traceID string) approval.LastPoll {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.polls[traceID]
}

// keepPolls drops what is remembered of tasks of a rule that are not polled any more.
func (b *callbook) keepPolls(polled map[string]bool, before map[string]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.polls, func(traceID string, _ approval.LastPoll) bool { return before[traceID] && !polled[traceID] })
}

// serviceOf says where a POST of a rule goes, or its polls.
func serviceOf(webhook appsv1alpha1.TransitionRuleWebhook, poll bool) Service {
	config := webhook.ClientConfig
	if poll && config.Poll != nil {
		return Service{URL: config.Poll.URL, CABundle: config.Poll.CABundle, Secret: secretName(config.Poll.SecretRef)}
	}
	return Service{URL: config.URL, CABundle: config.CABundle, Secret: secretName(config.SecretRef)}
}

func secretName(reference *appsv1alpha1.SecretReference) string {
	if reference == nil {
		return ""
	}
	return reference.Name
}

// postOf is the request about the pods of a task. A pod that waits with two ids is one
// resource.
func postOf(rule *preparedRule, post approval.Post, pod func(policy.Request) *corev1.Pod) *remote.PostRequest {
	request := &remote.PostRequest{
		TraceID: post.TraceID, Stage: string(rule.stage), RuleName: rule.id.Rule,
		Namespace: rule.id.Object.Namespace, PodTransitionRule: rule.id.Object.Name,
	}
	known := map[string]bool{}
	for _, asked := range post.Requests {
		request.OperationTypes = append(request.OperationTypes, asked.Type)
		if uid := string(asked.Pod.UID); !known[uid] {
			known[uid] = true
			request.Resources = append(request.Resources,
				remote.PodResource(asked.Pod.Name, uid, parametersOf(rule.webhook.Parameters, pod(asked))))
		}
	}
	slices.Sort(request.OperationTypes)
	request.OperationTypes = slices.Compact(request.OperationTypes)
	return request
}

// parametersOf are the values that a rule sends with a pod. A field that the pod does not
// have is an empty text.
func parametersOf(wanted []appsv1alpha1.WebhookParameter, pod *corev1.Pod) map[string]string {
	values := map[string]string{}
	for _, parameter := range wanted {
		values[parameter.Key] = parameter.Value
		if from := parameter.ValueFrom; from != nil && from.FieldRef != nil && pod != nil {
			values[parameter.Key], _ = podfields.Value(pod, from.FieldRef.FieldPath)
		}
	}
	return values
}

// PollOf is a poll of a task.
func PollOf(traceID, taskID string, keys []string) *approval.Poll {
	return &approval.Poll{TraceID: traceID, TaskID: taskID, Keys: keys}
}
