package offline

import (
	"fmt"
	"slices"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/engine/evaluation"
	"github.com/podops-dev/podops/pkg/webhookrule/webhookclient"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask"
)

// Answer is the answer of a webhook rule's service about pods.
type Answer struct {
	// Rule is "<PodTransitionRule>/<rule>"; empty for all webhook rules.
	Rule string `json:"rule,omitempty"`

	// Pods are the names of the pods; empty for all.
	Pods []string `json:"pods,omitempty"`

	// Result is the answer.
	Result Result `json:"result"`

	// Message is the message of the service, or of the failure.
	Message string `json:"message,omitempty"`
}

// Result is the result of a call.
type Result string

// The results.
const (
	// Approved means that the service approves the pods.
	Approved Result = "Approved"

	// Rejected means that it does not.
	Rejected Result = "Rejected"

	// Processing means that the service has accepted the task and is polled.
	Processing Result = "Processing"

	// Failed means that the service could not be called.
	Failed Result = "Failed"
)

// Validate returns an error for a result that does not exist.
func (a Answer) Validate() error {
	if !slices.Contains([]Result{Approved, Rejected, Processing, Failed}, a.Result) {
		return fmt.Errorf("result %q is not one of %s, %s, %s, %s", a.Result, Approved, Rejected, Processing, Failed)
	}
	return nil
}

// isAbout reports whether the answer is about a request of a rule.
func (a Answer) isAbout(id rule.RuleID, request rule.Request) bool {
	return (a.Rule == "" || a.Rule == id.String()) && (len(a.Pods) == 0 || slices.Contains(a.Pods, request.Pod.Name))
}

// answer returns the objects with the answers of services in the status of their rules, as the manager
// records them; nil if no call was answered. The first answer about a pod counts.
func answer(objects Objects, view evaluation.Snapshot, outcome evaluation.Outcome, options Options) *Objects {
	answered := objects
	answered.Rules = slices.Clone(objects.Rules)
	found := false
	for id, eval := range outcome.Rules {
		if eval.Calls == nil {
			continue
		}
		status, hasAnswer := recorded(id, eval, view.Waiting, options)
		if !hasAnswer {
			continue
		}
		found = true
		for i, object := range answered.Rules {
			if object.Namespace == id.Ruleset.Namespace && object.Name == id.Ruleset.Name {
				changed := object.DeepCopy()
				changed.Status.RuleStates = append(slices.DeleteFunc(changed.Status.RuleStates, func(state appsv1alpha1.RuleState) bool {
					return state.Name == id.Rule
				}), appsv1alpha1.RuleState{Name: id.Rule, WebhookStatus: status})
				answered.Rules[i] = changed
			}
		}
	}
	if !found {
		return nil
	}
	return &answered
}

// recorded returns the status of a webhook rule after its calls were answered, and whether any was.
func recorded(
	id rule.RuleID, eval *evaluation.Rule, waiting []rule.Request, options Options,
) (status *appsv1alpha1.WebhookStatus, hasAnswer bool) {
	calls := map[string]bool{}
	for _, post := range eval.Calls.Posts {
		for _, request := range post.Requests {
			calls[request.Key()] = true
		}
	}
	tasks, number := webhooktask.FromStatus(eval.Calls.Stored), 0
	newTraceID := func() string { number++; return fmt.Sprintf("%s-%d", id.Rule, number) }
	for _, given := range options.Answers {
		var about []rule.Request
		for _, request := range waiting {
			if calls[request.Key()] && given.isAbout(id, request) {
				about = append(about, request)
				delete(calls, request.Key())
			}
		}
		var posts []webhooktask.Post
		tasks, posts = tasks.Open(about, eval.Calls.Rule, options.Now, newTraceID)
		for _, post := range posts {
			hasAnswer = true
			tasks = given.apply(tasks, post.TraceID, eval.Calls.Rule, options)
		}
	}
	return tasks.Status(options.Now), hasAnswer
}

// apply records the answer to a call.
func (a Answer) apply(tasks webhooktask.Tasks, traceID string, called webhooktask.Rule, options Options) webhooktask.Tasks {
	if a.Result == Failed {
		return tasks.PostFailed(traceID, webhooktask.Failure{Class: string(webhookclient.ClassUnreachable), Message: a.Message}, called, options.Now)
	}
	response := webhooktask.PostAnswer{Success: a.Result != Rejected, Message: a.Message}
	if a.Result == Processing {
		response.Poll, response.TaskID = true, traceID
	}
	tasks, _ = tasks.Posted(traceID, response, called, options.Now)
	return tasks
}
