package webhooktask

import (
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// Defaults of a poll without the fields. The API server fills both in; a rule that was stored
// without them must not be polled in a hot loop, or without end.
const (
	defaultInterval = appsv1alpha1.DefaultPollIntervalSeconds * time.Second
	defaultTimeout  = appsv1alpha1.DefaultPollTimeoutSeconds * time.Second
)

// DefaultRejectionRetry is the default of Rule.RejectionRetry.
const DefaultRejectionRetry = 15 * time.Second

const (
	// maxStates bounds the tasks in the status of one rule.
	maxStates = 32

	// objectStates bounds the tasks of all rules in one PodTransitionRule. A full task takes some 5
	// KiB, and an object of more than 1.5 MiB cannot be stored.
	objectStates = 128
)

// Rule has the properties of a rule that its tasks depend on.
type Rule struct {
	// Generation is the generation of the PodTransitionRule.
	Generation int64

	// Polls is set if the rule has a poll, so that its service may answer later.
	Polls bool

	// QueryKey is the query parameter of a poll that carries the id of the task. If it is empty,
	// the answer of the service selects it.
	QueryKey string

	// Interval is the time between two polls of one task.
	Interval time.Duration

	// Timeout is the timeout of a polled task, from its first call.
	Timeout time.Duration

	// RejectionRetry is roughly the delay before the service is called again after a POST that rejected
	// the pods.
	RejectionRetry time.Duration

	// States bounds the tasks in status.
	States int
}

// NewRule returns the properties of a webhook rule. generation is the generation of the
// PodTransitionRule, and webhookRules the number of its webhook rules: the higher it is, the fewer
// tasks each rule may have.
func NewRule(generation int64, webhook appsv1alpha1.TransitionRuleWebhook, webhookRules int) Rule {
	rule := Rule{
		Generation:     generation,
		Interval:       defaultInterval,
		Timeout:        defaultTimeout,
		RejectionRetry: DefaultRejectionRetry,
		States:         min(maxStates, objectStates/max(1, webhookRules)),
	}
	poll := webhook.ClientConfig.Poll
	if poll == nil {
		return rule
	}
	rule.Polls, rule.QueryKey = true, poll.RawQueryKey
	rule.Interval = seconds(poll.IntervalSeconds, defaultInterval)
	rule.Timeout = seconds(poll.TimeoutSeconds, defaultTimeout)
	return rule
}

// seconds returns the value of a field, or a default if it is unset or below 1.
func seconds(value *int64, otherwise time.Duration) time.Duration {
	const week = 7 * 24 * 60 * 60
	if value == nil || *value < 1 {
		return otherwise
	}
	return time.Duration(min(*value, week)) * time.Second
}

// openStates bounds the open tasks.
func (r Rule) openStates() int { return min(r.States, appsv1alpha1.MaxStatusTasks) }

// freshStates bounds the tasks above which pods without an earlier call wait. The rest is reserved
// for repeated calls, so that new pods cannot displace them.
func (r Rule) freshStates() int { return r.States - r.States/4 }
