package rule

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// Outcome is the outcome of one rule for one request. The zero value withholds, so that a missing,
// undefined or late verdict withholds.
type Outcome int

const (
	// Withheld means that the request waits.
	Withheld Outcome = iota

	// Passed means that the rule does not withhold the request.
	Passed

	// NeedsSlot means that the request passes if its pod gets one of the rule's slots.
	NeedsSlot
)

// Code is the stable reason why a rule withholds.
type Code string

const (
	// CodeLabelMismatch means that the labels of the pod do not match labelCheck.requires.
	CodeLabelMismatch Code = "LabelMismatch"

	// CodeNoRoom means that another unavailable pod would violate maxUnavailable or minAvailable.
	CodeNoRoom Code = "NoRoom"

	// CodeUndefined means that the rule returned no verdict for the request.
	CodeUndefined Code = "Undefined"

	// CodeEvaluationFailed means that the policy engine returned an error.
	CodeEvaluationFailed Code = "EvaluationFailed"

	// CodeCompileFailed means that the rule does not compile.
	CodeCompileFailed Code = "CompileFailed"

	// CodeNotAllowed means that allow of the user's module is not true.
	CodeNotAllowed Code = "NotAllowed"

	// CodeDenied means that deny of the user's module is not empty.
	CodeDenied Code = "Denied"

	// CodeWrongType means that the entry point of the user's module has a value of another type.
	CodeWrongType Code = "WrongType"

	// CodeTimeout means that the user's module used up its CPU time, memory or stack.
	CodeTimeout Code = "Timeout"

	// CodePolicyTooExpensive means that the user's module timed out repeatedly, and is in
	// quarantine until it is edited.
	CodePolicyTooExpensive Code = "PolicyTooExpensive"

	// CodeInvalidParameters means that the parameters do not fit the schema of the
	// PodTransitionPolicy.
	CodeInvalidParameters Code = "InvalidParameters"

	// CodePolicyNotFound means that the PodTransitionPolicy of the rule does not exist.
	CodePolicyNotFound Code = "PolicyNotFound"

	// CodeTooLarge means that the PodTransitionRule, or the PodTransitionPolicy that the rule
	// refers to, exceeds its size bounds and is not loaded.
	CodeTooLarge Code = "TooLarge"

	// CodeWebhookPending means that the external service has not been called yet, or has not
	// answered.
	CodeWebhookPending Code = "WebhookPending"

	// CodeWebhookProcessing means that the external service works on the task.
	CodeWebhookProcessing Code = "WebhookProcessing"

	// CodeWebhookRejected means that the external service rejected the pod, gave up, or took too
	// long.
	CodeWebhookRejected Code = "WebhookRejected"

	// CodeWebhookFailed means that the call of the external service failed, or its answer could not
	// be parsed.
	CodeWebhookFailed Code = "WebhookFailed"

	// CodeNotReached means that the namespace had used up the time of its round before the rule was
	// evaluated for the request, or the machine was too busy. A later round continues there.
	CodeNotReached Code = "NotReached"

	// CodeNotApproved means that too few users have approved the revision that replaces the pod.
	CodeNotApproved Code = "NotApproved"

	// CodeRevisionDenied means that a user has denied the revision that replaces the pod.
	CodeRevisionDenied Code = "RevisionDenied"

	// CodeFrozen means that the whole cluster is frozen.
	CodeFrozen Code = "Frozen"

	// CodeBudgetUnknown means that the status of the PodDisruptionBudget does not say how many pods
	// may be disrupted: the disruption controller has not seen its present spec, or has failed.
	CodeBudgetUnknown Code = "BudgetUnknown"

	// CodeRuleDeleted means that the PodTransitionRule was just deleted, and that another with the
	// same name may replace it.
	CodeRuleDeleted Code = "RuleDeleted"
)

// Verdict is the verdict of one rule for one request.
type Verdict struct {
	Outcome Outcome

	// Code is why the request is withheld; empty otherwise.
	Code Code

	// Would is why the request would be withheld if the rule were enforced; empty if it would pass.
	Would Code

	// Message is the message of the user's module, or of its error; at most MaxMessageBytes. Empty
	// for all built-in rules.
	Message string

	// Details are machine-readable details of the user's module, as a JSON object; at most
	// MaxMessageBytes. Empty without details.
	Details string

	// Call means that the external service of a webhook rule must be called for the request.
	Call bool

	// RetryAfter is the delay after which the user's module must be evaluated again; 0
	// without such a delay.
	RetryAfter time.Duration
}

// MaxMessageBytes bounds every message.
const MaxMessageBytes = 512

// Capacity is the number of an availablePolicy's slots, with the numbers that it is computed
// from. Bounds that are not set are -1.
type Capacity struct {
	// Slots is the number of free slots, never negative.
	Slots int

	// Selected is the number of selected pods that are neither terminating nor finished.
	Selected int

	// Desired is the number that MaxUnavailable refers to.
	Desired int

	// Available is the number of available pods without a reservation.
	Available int

	// MaxUnavailable and MinAvailable are whole numbers of pods.
	MaxUnavailable int
	MinAvailable   int
}

// Missing returns how many more pods must become available until both bounds hold; 0 while they
// hold. If it is above zero, Slots is 0.
func (r Capacity) Missing() int {
	least := r.MinAvailable
	if r.MaxUnavailable >= 0 {
		least = max(least, r.Desired-r.MaxUnavailable)
	}
	return max(0, least-r.Available)
}

// Result is the result of one rule for a batch of requests.
type Result struct {
	// Verdicts are by Request.Key. A missing key is withheld.
	Verdicts map[string]Verdict

	// Capacity is set by rules of kind availablePolicy, and nil for all others.
	Capacity *Capacity

	// CPUTime is the CPU time of a user's module for all requests, including compiling; 0 for
	// built-in rules.
	CPUTime time.Duration
}

// Kind is the kind of a rule: the JSON name of its field.
type Kind string

// The kinds of rules.
const (
	KindAvailablePolicy Kind = "availablePolicy"
	KindLabelCheck      Kind = "labelCheck"
	KindApproval        Kind = "approval"
	KindWebhook         Kind = "webhook"
	KindRego            Kind = "rego"
)

// FindKind returns the kind of a valid rule.
func FindKind(entry *appsv1alpha1.TransitionRule) Kind {
	switch {
	case entry.AvailablePolicy != nil:
		return KindAvailablePolicy
	case entry.LabelCheck != nil:
		return KindLabelCheck
	case entry.Approval != nil:
		return KindApproval
	case entry.Webhook != nil:
		return KindWebhook
	default:
		return KindRego
	}
}

// KindDisruptionBudget is the kind of a PodDisruptionBudget, which counts as a PreCheck rule of
// the pods that it selects.
const KindDisruptionBudget Kind = "PodDisruptionBudget"

// DisruptionBudgetID returns the id of a PodDisruptionBudget among rules. Its string is
// "PodDisruptionBudget/<name>", which is not the name of any PodTransitionRule.
func DisruptionBudgetID(namespace, name string) RuleID {
	return RuleID{Ruleset: types.NamespacedName{Namespace: namespace, Name: string(KindDisruptionBudget)}, Rule: name}
}

// IsDisruptionBudget reports whether the id names a PodDisruptionBudget.
func (r RuleID) IsDisruptionBudget() bool { return r.Ruleset.Name == string(KindDisruptionBudget) }

// KindFreeze is the kind of a cluster freeze, which counts as a PreCheck rule of every pod.
const KindFreeze Kind = "Freeze"

// FreezeID returns the id of the cluster freeze among rules. Its string is "Freeze/cluster", which is not the name of any
// PodTransitionRule.
func FreezeID(namespace string) RuleID {
	return RuleID{Ruleset: types.NamespacedName{Namespace: namespace, Name: string(KindFreeze)}, Rule: "cluster"}
}

// Freeze withholds every PreCheck permit until a time; the zero value withholds none.
type Freeze struct {
	// Message has the user and the reason.
	Message string

	// Until is the end; zero without an end.
	Until time.Time
}

// Holds reports whether the freeze withholds permits at a time.
func (f Freeze) Holds(now time.Time) bool {
	return f.Message != "" && (f.Until.IsZero() || now.Before(f.Until))
}

// RuleID identifies one rule of one PodTransitionRule.
type RuleID struct {
	// Ruleset is the PodTransitionRule.
	Ruleset types.NamespacedName

	// Rule is the name within it.
	Rule string
}

// String returns "<PodTransitionRule>/<rule>", as status and messages print it.
func (r RuleID) String() string { return r.Ruleset.Name + "/" + r.Rule }

// Reason is why one rule withholds one request.
type Reason struct {
	Rule    RuleID
	Kind    Kind
	Stage   appsv1alpha1.TransitionStage
	Code    Code
	Message string

	// Details are the details of the user's module, as in Verdict.
	Details string

	// Numbers is nil for rules that count nothing.
	Numbers *Numbers

	// BlockingPods are the names of pods that the request waits for, sorted; the first
	// MaxBlockingPods of them.
	BlockingPods []string

	// Since is when the request began to wait.
	Since time.Time

	// NextCheck is when the rule is evaluated again even if nothing changes; zero if only a change
	// leads on.
	NextCheck time.Time
}

// MaxBlockingPods bounds Reason.BlockingPods.
const MaxBlockingPods = 5

// Numbers are the numbers of an availablePolicy: a slot needs Needed, and Have is left of Limit.
type Numbers struct {
	Needed int
	Have   int
	Limit  int
}
