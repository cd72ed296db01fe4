package evaluation

import (
	"slices"
	"time"

	"github.com/podops-dev/podops/pkg/core/permit"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/runtime/backoff"
	"github.com/podops-dev/podops/pkg/webhookrule/webhookclient"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask/dispatch"
	"k8s.io/apimachinery/pkg/types"
)

// Evaluation is the result of all rules in a namespace for all requests that wait. It is not modified
// after Evaluate has returned it.
type Evaluation struct {
	findings

	// candidates are the requests that passed every rule except the rules that permit.Next checks:
	// availability slots, and rules that read other pods.
	candidates []permit.Candidate

	// budgets are the slots of the availability rules.
	budgets []permit.Budget

	// disruptions are the PodDisruptionBudgets by their id.
	disruptions map[rule.RuleID]*disruption

	// approvals are the decisions of users about workloads.
	approvals approvals

	// Frozen is the message of the cluster freeze while it holds; empty otherwise.
	Frozen string

	// exceptions are why requests pass rules that withhold them.
	exceptions exceptions

	// Rulesets by name.
	Rulesets map[string]*Ruleset

	// Rules by their id, and in the order in which they are evaluated.
	Rules   map[rule.RuleID]*Rule
	inOrder []*Rule

	Effects

	// Retry is the delay after which the rules are evaluated again although nothing has changed; 0 for never.
	Retry time.Duration
}

// retryIn has the rules evaluated again after a delay, unless that happens sooner; 0 changes nothing.
func (e *Evaluation) retryIn(delay time.Duration) { e.Retry = backoff.MinDelay(e.Retry, delay) }

// heldByCheaper reports whether a rule other than a webhook withholds a request: no service is called
// about it then.
func (e *Evaluation) heldByCheaper(request rule.Request) bool {
	return slices.ContainsFunc(e.withheld[request.Key()], func(reason rule.Reason) bool { return reason.Kind != rule.KindWebhook })
}

// IsReserved reports whether a pod holds a reservation.
func (e Evaluation) IsReserved(uid types.UID) bool {
	return slices.ContainsFunc(e.budgets, func(budget permit.Budget) bool { _, live := budget.Live[uid]; return live })
}

// Calls are what this process knows about the webhook calls of a namespace.
type Calls struct {
	Rules map[rule.RuleID]KnownCalls

	// MaySkip reports whether one rule may record calls as failed without making them: that is a background write.
	MaySkip bool
}

// KnownCalls are what this process knows about the calls of one rule.
type KnownCalls struct {
	// Results are the results that the status does not have yet.
	Results []dispatch.Result

	// Posts are the trace ids of the POSTs under way, and of those with a result that the status does not have yet.
	Posts map[string]bool

	// CircuitOpen is the failure that a POST would have because the circuit breaker of the service is open; nil
	// when the POST would be made.
	CircuitOpen *webhookclient.Failure
}

// evaluating is an evaluation in progress.
type evaluating struct {
	*Evaluation
	turn           *Turn
	state          *State
	modules        Modules
	calls          Calls
	rejectionRetry time.Duration
}
