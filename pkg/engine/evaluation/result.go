package evaluation

import (
	"fmt"
	"slices"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"github.com/podops-dev/podops/pkg/webhookrule/webhookclient"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask/dispatch"
)

// Effects are what the caller has to count and report. The State of the namespace has them already.
type Effects struct {
	// Late counts, by rule, the evaluations that used up their CPU time without a verdict.
	Late map[rule.RuleID]int

	// Quarantined are the rules that went under quarantine.
	Quarantined []*Rule

	// Skipped are the calls that were recorded as failed without being made.
	Skipped []SkippedCalls
}

// SkippedCalls are calls of a rule that were recorded as failed without being made.
type SkippedCalls struct {
	Rule    *Rule
	Calls   int
	Failure *webhookclient.Failure
}

// strike counts evaluations of a rule without a verdict, the last one for a reason.
func (e *Effects) strike(eval *Rule, missed int, why string) {
	if missed == 0 {
		return
	}
	if e.Late == nil {
		e.Late = map[rule.RuleID]int{}
	}
	e.Late[eval.ID()] += missed
	if eval.prepared.strike(eval.Object(), missed, why, eval.env.Now) {
		e.Quarantined = append(e.Quarantined, eval)
	}
}

// Ruleset is the result of one PodTransitionRule.
type Ruleset struct {
	View podindex.RuleView

	// Rules in the order in which they are evaluated.
	Rules []*Rule

	// NeverPasses are the names of availability rules without capacity even if every pod were available.
	NeverPasses []string

	// CompileErr is why rules cannot be evaluated, EvaluateErr why an evaluation has failed.
	CompileErr  error
	EvaluateErr error

	// BreakGlass is the reason of the break-glass annotation with which every pod passes the
	// PreCheck rules; empty without it.
	BreakGlass string

	// unreached are the stages in which all requests are withheld because the round has ended.
	unreached map[appsv1alpha1.TransitionStage]bool

	// CallsChanged reports whether the stored status differs from the calls of the webhook rules.
	CallsChanged bool
}

// Rule is the result of one rule.
type Rule struct {
	prepared *preparedRule
	ruleset  *Ruleset
	env      rule.Environment

	// capacity of an availability rule that was evaluated.
	capacity *rule.Capacity

	// most is its capacity if every pod were available; nil when it is unknown.
	most *rule.Capacity

	// Calls of a webhook rule; nil for all others.
	Calls *CallPlan

	// skipped reports whether the rule was not evaluated, because the round has ended and another rule of
	// the PodTransitionRule withholds the same requests for that.
	skipped bool
}

// ID returns the id of the rule.
func (e *Rule) ID() rule.RuleID { return e.prepared.id }

// Stage returns the stage in which the rule is evaluated.
func (e *Rule) Stage() appsv1alpha1.TransitionStage { return e.prepared.stage }

// Webhook returns the webhook of the rule in its canonical spelling; nil for other kinds.
func (e *Rule) Webhook() *appsv1alpha1.TransitionRuleWebhook { return e.prepared.webhook }

// Object returns the PodTransitionRule of the rule.
func (e *Rule) Object() *appsv1alpha1.PodTransitionRule { return e.ruleset.View.Object }

// Quarantine returns the quarantine of the rule; nil when it is not under quarantine.
func (e *Rule) Quarantine() *appsv1alpha1.Quarantine { return e.prepared.quarantined }

// Enforcement returns what a denial by the rule does.
func (e *Rule) Enforcement() appsv1alpha1.Enforcement { return defaultedEnforcement(e.prepared.spec) }

// Budget has the number of pods that an availability rule permits to be unavailable, and the number of pods
// that are, including reserved pods.
type Budget struct {
	Unavailable int
	Limit       int
}

// BoundsAvailability reports whether the rule is an enforced availability rule.
func (e *Rule) BoundsAvailability() bool { return e.prepared.budget() }

// Budget returns the budget of an availability rule, whether or not a pod waits for it. It returns false when the
// rule could not be evaluated.
func (e *Rule) Budget() (Budget, bool) {
	counts := e.env.Counts
	switch {
	case max(counts.Desired, counts.Selected) == 0:
		return Budget{}, true
	case e.most == nil:
		return Budget{}, false
	default:
		return Budget{Unavailable: max(0, counts.Desired-counts.Available+counts.Reserved), Limit: availabilityLimit(*e.most)}, true
	}
}

// Now returns the time of the evaluation.
func (e *Rule) Now() time.Time { return e.env.Now }

// needsSlots reports whether the rule is an enforced availability rule that applies to a request, and available
// pods go with its pod. A rule passes a pod that is itself unavailable.
func (e *Rule) needsSlots(request rule.Request) bool {
	return e.prepared.budget() && e.ruleset.View.With[request.Pod.UID] > 0 && request.Stage == appsv1alpha1.StagePreCheck &&
		rule.NewScope(e.prepared.spec).Applies(request.Type, request.Pod.Labels, request.Pod.SkipRules)
}

// CallPlan has the calls of one webhook rule after a round, and the calls to make.
type CallPlan struct {
	Rule  webhooktask.Rule
	Tasks webhooktask.Tasks

	// Stored is the state of the calls in the status.
	Stored *appsv1alpha1.WebhookStatus

	// Results are part of Tasks, and not yet in the status.
	Results []dispatch.Result

	// Posts are sent once the status is written.
	Posts []webhooktask.Post

	// Unknown are names in answers that the calls did not contain.
	Unknown []string

	// wants are the requests about which the rule needs an answer of its service.
	wants []rule.Request

	// skipped reports whether calls were recorded as failed without being made, because the circuit breaker
	// of the service is open.
	skipped bool
}

// withTasks returns the requests with their tasks.
func (p *CallPlan) withTasks(requests []rule.Request, now time.Time) []rule.Request {
	known := slices.Clone(requests)
	for i := range known {
		known[i].Task = p.Tasks.Of(known[i], p.Rule, now)
	}
	return known
}

// States returns the calls of a PodTransitionRule for its status.
func (r *Ruleset) States() []appsv1alpha1.RuleState {
	var states []appsv1alpha1.RuleState
	for _, rule := range r.View.Object.Spec.Rules {
		for _, eval := range r.Rules {
			if eval.prepared.spec.Name != rule.Name || eval.Calls == nil {
				continue
			}
			if status := eval.Calls.Tasks.Status(eval.env.Now); status != nil {
				states = append(states, appsv1alpha1.RuleState{Name: rule.Name, WebhookStatus: status})
			}
		}
	}
	return states
}

// IsUrgent reports whether a status write unblocks something: a call that may be sent only after it is
// recorded, an answer that may release pods, or a skipped call. Failed calls are not urgent.
func (r *Ruleset) IsUrgent() bool {
	return r.CallsChanged && slices.ContainsFunc(r.Rules, func(eval *Rule) bool {
		return eval.Calls != nil && (len(eval.Calls.Posts) > 0 || eval.Calls.skipped ||
			slices.ContainsFunc(eval.Calls.Results, func(result dispatch.Result) bool { return result.Failure == nil }))
	})
}

// Quarantined returns the rules under quarantine by name, each with its message.
func (r *Ruleset) Quarantined() []string {
	var messages []string
	for _, eval := range r.Rules {
		if stopped := eval.prepared.quarantined; stopped != nil {
			messages = append(messages, fmt.Sprintf("rule %s: %s", eval.prepared.spec.Name, stopped.Message))
		}
	}
	slices.Sort(messages)
	return messages
}

// Statuses returns the rule counters for the status of a PodTransitionRule, ordered as spec.rules.
func (r *Ruleset) Statuses() []appsv1alpha1.RuleStatus {
	var statuses []appsv1alpha1.RuleStatus
	for _, entry := range r.View.Object.Spec.Rules {
		for _, eval := range r.Rules {
			if eval.prepared.spec.Name != entry.Name || len(statuses) == appsv1alpha1.MaxStatusRules {
				continue
			}
			status := eval.prepared.counters.status.DeepCopy()
			status.Quarantined = eval.prepared.quarantined.DeepCopy()
			statuses = append(statuses, *status)
		}
	}
	return statuses
}

// availabilityLimit returns the number of pods that may be unavailable under a rule, by the lower of its
// bounds.
func availabilityLimit(capacity rule.Capacity) int {
	limit := capacity.Desired
	if capacity.MaxUnavailable >= 0 {
		limit = min(limit, capacity.MaxUnavailable)
	}
	if capacity.MinAvailable >= 0 {
		limit = min(limit, max(0, capacity.Desired-capacity.MinAvailable))
	}
	return limit
}
