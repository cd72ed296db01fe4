package dispatch

import (
	"net/url"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/tracing"
	"github.com/podops-dev/podops/pkg/webhookrule/webhookclient"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask"
)

// Call is one HTTP request of a webhook rule. Exactly one of Post and Poll is set.
type Call struct {
	Rule    rule.RuleID
	TraceID string
	Service Service
	Post    *webhookclient.PostRequest
	Poll    *webhooktask.Poll

	// Stage is the stage of the rule, and Of are the lifecycles that the call is about and that have an exported
	// trace.
	Stage appsv1alpha1.TransitionStage
	Of    []tracing.Lifecycle
}

// traced returns the call as its spans have it.
func (c Call) traced(now time.Time) tracing.Call {
	if len(c.Of) == 0 {
		return tracing.Call{}
	}
	traced := tracing.Call{Rule: c.Rule, Stage: c.Stage, Poll: c.Poll != nil, TraceID: c.TraceID, Submitted: now, Of: c.Of}
	if service, err := url.Parse(c.Service.URL); err == nil {
		traced.Server = service.Hostname()
	}
	return traced
}

// Service is the destination of a rule's calls.
type Service struct {
	URL      string
	CABundle string

	// Secret in the namespace of the rule that has the credentials; empty for a call without
	// credentials.
	Secret string
}

// Result of a Call: an answer of its kind, or a failure.
type Result struct {
	Call    Call
	Post    *webhooktask.PostAnswer
	Poll    *webhooktask.PollAnswer
	Failure *webhookclient.Failure
}

// Apply returns the tasks of a rule after the result, and the names in it that the call did not contain.
func (r Result) Apply(tasks webhooktask.Tasks, rule webhooktask.Rule, now time.Time) (webhooktask.Tasks, []string) {
	switch {
	case r.Failure != nil && r.Call.Post != nil:
		return tasks.PostFailed(r.Call.TraceID, NewFailure(*r.Failure), rule, now), nil
	case r.Failure != nil:
		return tasks.PollFailed(r.Call.TraceID, NewFailure(*r.Failure), rule, now), nil
	case r.Post != nil:
		return tasks.Posted(r.Call.TraceID, *r.Post, rule, now)
	case r.Poll != nil:
		return tasks.Polled(r.Call.TraceID, *r.Poll, rule, now)
	default:
		return tasks, nil
	}
}

// NewFailure returns a failure as the status of a rule shows it.
func NewFailure(failure webhookclient.Failure) webhooktask.Failure {
	class, message := failure.Shown()
	return webhooktask.Failure{Class: string(class), Message: message, RetryAfter: failure.RetryAfter}
}

// NewService returns the service to which the POSTs of a webhook rule go, or its polls.
func NewService(webhook appsv1alpha1.TransitionRuleWebhook, poll bool) Service {
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
