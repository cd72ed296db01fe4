package webhooktask

import (
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// What is meant by a poll that does not say it. The API server fills both in; a rule that got
// around it is not to be polled without a break, or for ever.
const (
	defaultInterval = appsv1alpha1.DefaultPollIntervalSeconds * time.Second
	defaultTimeout  = appsv1alpha1.DefaultPollTimeoutSeconds * time.Second
)

// DefaultAskAgain is the interval of Rule.AskAgain unless it is set.
const DefaultAskAgain = 15 * time.Second

const (
	// maxStates is how many tasks the status of one rule has room for.
	maxStates = 32

	// objectStates is how many tasks all rules of one PodTransitionRule share. A full task takes
	// some 5 KiB, and an object of more than 1.5 MiB cannot be stored.
	objectStates = 128
)

// Rule is what tasks need to know of the rule that they belong to.
type Rule struct {
	// Generation of the PodTransitionRule.
	Generation int64

	// Polls: the rule has a poll, so its service may answer later.
	Polls bool

	// QueryKey is the parameter of a poll that carries the id of the task. Empty: what the
	// service answers decides.
	QueryKey string

	// Interval between two polls of one task.
	Interval time.Duration

	// Timeout of a task that is polled, from its first call.
	Timeout time.Duration

	// AskAgain is about how long after a no to a POST the service is asked again.
	AskAgain time.Duration

	// States is how many tasks status has room for.
	States int
}

// RuleOf reads a webhook rule of a PodTransitionRule that has that generation and that many webhook
// rules. The more there are, the fewer tasks each may have.
func RuleOf(generation int64, webhook appsv1alpha1.TransitionRuleWebhook, webhookRules int) Rule {
	rule := Rule{
		Generation: generation,
		Interval:   defaultInterval,
		Timeout:    defaultTimeout,
		AskAgain:   DefaultAskAgain,
		States:     min(maxStates, objectStates/max(1, webhookRules)),
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

// seconds are those of a field, or what is meant when it is unset or makes no sense.
func seconds(value *int64, otherwise time.Duration) time.Duration {
	const week = 7 * 24 * 60 * 60
	if value == nil || *value < 1 {
		return otherwise
	}
	return time.Duration(min(*value, week)) * time.Second
}

// openStates is how many tasks may be under way at once.
func (r Rule) openStates() int { return min(r.States, appsv1alpha1.MaxStatusTasks) }

// freshStates is how many tasks there may be before pods that were never asked about wait. The
// rest is for those that are asked about again, so that newcomers cannot crowd them out.
func (r Rule) freshStates() int { return r.States - r.States/4 }
