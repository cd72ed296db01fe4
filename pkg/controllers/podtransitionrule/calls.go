package podtransitionrule

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/podfields"
	"github.com/podops-dev/podops/pkg/rule"
	"github.com/podops-dev/podops/pkg/webhookclient"
	"github.com/podops-dev/podops/pkg/webhooktask"
)

// Call is one HTTP request of a webhook rule. Exactly one of Post and Poll is set.
type Call struct {
	Rule    rule.RuleID
	TraceID string
	Service Service
	Post    *webhookclient.PostRequest
	Poll    *webhooktask.Poll
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
	Post    *webhookclient.PostAnswer
	Poll    *webhookclient.PollAnswer
	Failure *webhookclient.Failure
}

// Caller makes calls outside of rounds, and hands each result to Reconciler.Deliver.
type Caller interface {
	// Call starts a call. It never blocks; what cannot be started is delivered as a
	// failure.
	Call(ctx context.Context, call Call)

	// CircuitOpen returns the failure that a POST of a rule would have because the circuit
	// breaker of the service is open; nil when the POST would be made. It changes nothing.
	CircuitOpen(rule rule.RuleID, service Service) *webhookclient.Failure

	// Admit is called when POSTs of a rule are about to be written down. It returns the failure
	// of CircuitOpen, or reports that the next POST is the probe of a half-open circuit breaker,
	// which is reserved for that one POST.
	Admit(rule rule.RuleID, service Service) (probe bool, failure *webhookclient.Failure)

	// CountSkipped counts a POST of a rule that was not made because the circuit breaker is open.
	CountSkipped(rule rule.RuleID, service Service, failure *webhookclient.Failure)

	// Forget drops what is remembered of a rule that is gone.
	Forget(rule rule.RuleID)
}

// inFlight has what rounds know of the calls of this process. It is lost with the process:
// what must not be lost is in status.
type inFlight struct {
	mu sync.Mutex

	// rules has the calls of each rule, by namespace. A rule is there from its first call until
	// keep finds it gone.
	rules map[string]map[rule.RuleID]*ruleCalls
}

// ruleCalls are the calls of one rule.
type ruleCalls struct {
	// results that are not yet in status.
	results []Result

	// posts under way, or with a result that is not yet in status, by trace id.
	posts map[string]bool

	// polls of the tasks in status, by trace id.
	polls map[string]webhooktask.LastPoll
}

func newInFlight() *inFlight {
	return &inFlight{rules: map[string]map[rule.RuleID]*ruleCalls{}}
}

// open notes that a rule makes calls, or would.
func (b *inFlight) open(rule rule.RuleID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.opened(rule)
}

func (b *inFlight) opened(id rule.RuleID) *ruleCalls {
	namespace := id.Object.Namespace
	if b.rules[namespace] == nil {
		b.rules[namespace] = map[rule.RuleID]*ruleCalls{}
	}
	if b.rules[namespace][id] == nil {
		b.rules[namespace][id] = &ruleCalls{posts: map[string]bool{}, polls: map[string]webhooktask.LastPoll{}}
	}
	return b.rules[namespace][id]
}

// read returns the calls of a rule; those of a rule that is not there are empty, and not kept.
func (b *inFlight) read(rule rule.RuleID) *ruleCalls {
	if calls := b.rules[rule.Object.Namespace][rule]; calls != nil {
		return calls
	}
	return &ruleCalls{}
}

// begin notes that a call is under way.
func (b *inFlight) begin(call Call) {
	b.mu.Lock()
	defer b.mu.Unlock()
	calls := b.opened(call.Rule)
	if call.Post != nil {
		calls.posts[call.TraceID] = true
		return
	}
	last := calls.polls[call.TraceID]
	last.Running = true
	calls.polls[call.TraceID] = last
}

// deliver notes the result of a call. Results of a rule that is gone are dropped.
func (b *inFlight) deliver(result Result, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	calls := b.rules[result.Call.Rule.Object.Namespace][result.Call.Rule]
	if calls == nil {
		return
	}
	calls.results = append(calls.results, result)
	before, polled := calls.polls[result.Call.TraceID]
	if !polled {
		return // a post stays known until its result is in status
	}
	last := webhooktask.LastPoll{At: now}
	if result.Failure != nil {
		last.Failures, last.RetryAfter = before.Failures+1, result.Failure.RetryAfter
	}
	calls.polls[result.Call.TraceID] = last
}

// of returns the results of one rule that are not yet in status.
func (b *inFlight) of(rule rule.RuleID) []Result {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.read(rule).results)
}

// written drops results of a rule, which are in status now.
func (b *inFlight) written(rule rule.RuleID, written []Result) {
	b.mu.Lock()
	defer b.mu.Unlock()
	calls := b.read(rule)
	calls.results = slices.DeleteFunc(calls.results, func(result Result) bool {
		return slices.ContainsFunc(written, func(one Result) bool {
			return one.Call.TraceID == result.Call.TraceID && one.Post == result.Post && one.Poll == result.Poll && one.Failure == result.Failure
		})
	})
	for _, result := range written {
		if result.Call.Post != nil {
			delete(calls.posts, result.Call.TraceID)
		}
	}
}

// keep drops the rules of a namespace that are gone, with calls under way, and returns them.
func (b *inFlight) keep(namespace string, present func(rule.RuleID) bool) (gone []rule.RuleID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for rule := range b.rules[namespace] {
		if !present(rule) {
			gone = append(gone, rule)
			delete(b.rules[namespace], rule)
		}
	}
	if len(b.rules[namespace]) == 0 {
		delete(b.rules, namespace)
	}
	return gone
}

// knows returns a function that reports whether a post of a rule is under way in this process,
// or has a result that is not yet in status.
func (b *inFlight) knows(rule rule.RuleID) func(traceID string) bool {
	return func(traceID string) bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.read(rule).posts[traceID]
	}
}

// lastPoll returns a function that returns the last poll of a task of a rule.
func (b *inFlight) lastPoll(rule rule.RuleID) func(traceID string) webhooktask.LastPoll {
	return func(traceID string) webhooktask.LastPoll {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.read(rule).polls[traceID]
	}
}

// keepPolls drops the polls of a rule whose tasks are not polled any more.
func (b *inFlight) keepPolls(rule rule.RuleID, polled map[string]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.read(rule).polls, func(traceID string, _ webhooktask.LastPoll) bool { return !polled[traceID] })
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
func postOf(rule *preparedRule, post webhooktask.Post, pod func(rule.Request) *corev1.Pod) *webhookclient.PostRequest {
	request := &webhookclient.PostRequest{
		TraceID: post.TraceID, Stage: string(rule.stage), RuleName: rule.id.Rule,
		Namespace: rule.id.Object.Namespace, PodTransitionRule: rule.id.Object.Name,
	}
	positions := map[types.UID]int{}
	for _, asked := range post.Requests {
		request.OperationTypes = append(request.OperationTypes, asked.Type)
		at, known := positions[asked.Pod.UID]
		if !known {
			at = len(request.Resources)
			positions[asked.Pod.UID] = at
			request.Resources = append(request.Resources, resourceOf(asked.Pod, parametersOf(rule.webhook.Parameters, pod(asked))))
		}
		if asked.Cause != "" {
			request.Resources[at].Cause = string(asked.Cause)
		}
	}
	slices.Sort(request.OperationTypes)
	request.OperationTypes = slices.Compact(request.OperationTypes)
	return request
}

// resourceOf is a pod as a service is asked about it.
func resourceOf(pod *rule.PodFact, parameters map[string]string) webhookclient.Resource {
	resource := webhookclient.PodResource(pod.Name, string(pod.UID), parameters)
	if pod.Owner.Name != "" {
		resource.Owner = &webhookclient.ResourceOwner{Kind: pod.Owner.Kind, Name: pod.Owner.Name}
	}
	resource.Revision = cmp.Or(pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey], pod.Labels[appsv1.ControllerRevisionHashLabelKey])
	resource.Labels = webhookclient.BoundedLabels(pod.Labels, isOfLifecycle)
	return resource
}

// isOfLifecycle reports whether a label is one of PodOpsLifecycle: those change while a pod waits.
func isOfLifecycle(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	return domain == lifecycleDomain || strings.HasSuffix(domain, "."+lifecycleDomain)
}

// lifecycleDomain ends the prefixes of all labels of PodOpsLifecycle.
const lifecycleDomain = "podopslifecycle.kusionstack.io"

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
func PollOf(traceID, taskID string, keys []string) *webhooktask.Poll {
	return &webhooktask.Poll{TraceID: traceID, TaskID: taskID, Keys: keys}
}
