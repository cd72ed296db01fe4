package rule

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// Outcome is what one rule says of one request. The zero value withholds, so a
// forgotten, undefined or late answer is a "no".
type Outcome int

const (
	// Withheld: the request waits.
	Withheld Outcome = iota

	// Passed: the rule does not hold the request back.
	Passed

	// NeedsSlot: the request passes if its pod is handed one of the rule's slots.
	NeedsSlot
)

// Code says in one stable word why a rule withholds.
type Code string

const (
	// CodeLabelMismatch: the labels of the pod do not match labelCheck.requires.
	CodeLabelMismatch Code = "LabelMismatch"

	// CodeNoRoom: another unavailable pod would break maxUnavailable or minAvailable.
	CodeNoRoom Code = "NoRoom"

	// CodeUndefined: the rule gave no answer for the request.
	CodeUndefined Code = "Undefined"

	// CodeEvaluationFailed: the policy engine answered with an error.
	CodeEvaluationFailed Code = "EvaluationFailed"

	// CodeCompileFailed: the rule does not compile.
	CodeCompileFailed Code = "CompileFailed"

	// CodeNotAllowed: allow of the user's module is not true.
	CodeNotAllowed Code = "NotAllowed"

	// CodeDenied: deny of the user's module is not empty.
	CodeDenied Code = "Denied"

	// CodeWrongType: the user's module answered with a value of another type than its
	// entry point has.
	CodeWrongType Code = "WrongType"

	// CodeTimeout: the user's module used up its CPU time without an answer.
	CodeTimeout Code = "Timeout"

	// CodePolicyTooExpensive: the user's module did not answer in time again and again,
	// and is not asked any more until it is edited.
	CodePolicyTooExpensive Code = "PolicyTooExpensive"

	// CodeInvalidParameters: the parameters do not fit the schema of the
	// PodTransitionPolicy.
	CodeInvalidParameters Code = "InvalidParameters"

	// CodePolicyNotFound: the PodTransitionPolicy that the rule refers to does not exist.
	CodePolicyNotFound Code = "PolicyNotFound"

	// CodeTooLarge: the PodTransitionRule, or the PodTransitionPolicy that the rule refers
	// to, exceeds its size bounds and is not loaded.
	CodeTooLarge Code = "TooLarge"

	// CodeWebhookPending: the external service has not been called yet, or has not
	// answered.
	CodeWebhookPending Code = "WebhookPending"

	// CodeWebhookProcessing: the external service works on it.
	CodeWebhookProcessing Code = "WebhookProcessing"

	// CodeWebhookRejected: the external service said no, gave up, or took too long.
	CodeWebhookRejected Code = "WebhookRejected"

	// CodeWebhookFailed: the external service could not be asked, or its answer could not
	// be understood.
	CodeWebhookFailed Code = "WebhookFailed"

	// CodeNotReached: the namespace had used up the time of its round before the rule was
	// evaluated for the request, or the machine was too busy. A later round goes on there.
	CodeNotReached Code = "NotReached"

	// CodeRuleDeleted: the PodTransitionRule was deleted a moment ago, and one of the same
	// name may take its place.
	CodeRuleDeleted Code = "RuleDeleted"
)

// Verdict is the answer of one rule for one request.
type Verdict struct {
	Outcome Outcome

	// Code is why the request is withheld; empty otherwise.
	Code Code

	// Would is why the request would have been withheld, had the rule's enforcement
	// been Enforce; empty when it would have passed.
	Would Code

	// Message is what the user's module, or an error of it, says besides the code; at
	// most MaxMessageBytes. Empty for all built-in rules.
	Message string

	// Details are what the user's module adds for programs, as a JSON object; at most
	// MaxMessageBytes. Empty when there are none.
	Details string

	// Call: the external service of a webhook rule has to be called about the request.
	Call bool

	// RetryAfter is how soon the user's module wants to be asked again; 0 when it
	// does not say.
	RetryAfter time.Duration
}

// MaxMessageBytes bounds every message.
const MaxMessageBytes = 512

// Capacity is how many slots an availablePolicy has to hand out, and the numbers that it
// came from. Bounds that are not set are -1.
type Capacity struct {
	// Slots that may be handed out now, never negative.
	Slots int

	// Selected pods, terminating and finished ones left out.
	Selected int

	// Desired is the number that MaxUnavailable pods may be missing from.
	Desired int

	// Available pods, reserved ones not included.
	Available int

	// MaxUnavailable and MinAvailable as whole numbers of pods.
	MaxUnavailable int
	MinAvailable   int
}

// Missing returns how many more pods had to be available for both bounds to hold; 0 while
// they hold. Slots is 0 when it is above zero.
func (r Capacity) Missing() int {
	least := r.MinAvailable
	if r.MaxUnavailable >= 0 {
		least = max(least, r.Desired-r.MaxUnavailable)
	}
	return max(0, least-r.Available)
}

// Result is the answer of one rule for a batch of requests.
type Result struct {
	// Verdicts by Request.Key. A key that is missing is withheld.
	Verdicts map[string]Verdict

	// Room is set by rules of kind availablePolicy, and nil for all others.
	Capacity *Capacity

	// CPUTime that a user's module used for all requests, compiling included; 0 for built-in rules.
	CPUTime time.Duration
}

// Kind of a rule: the JSON name of its field.
type Kind string

// The kinds of rules.
const (
	KindAvailablePolicy Kind = "availablePolicy"
	KindLabelCheck      Kind = "labelCheck"
	KindWebhook         Kind = "webhook"
	KindRego            Kind = "rego"
)

// RuleID names one rule of one PodTransitionRule.
type RuleID struct {
	// Object is the PodTransitionRule.
	Object types.NamespacedName

	// Rule is the name within it.
	Rule string
}

// String is "<PodTransitionRule>/<rule>", as status and messages print it.
func (r RuleID) String() string { return r.Object.Name + "/" + r.Rule }

// Reason says why one rule holds back one request.
type Reason struct {
	Rule    RuleID
	Kind    Kind
	Stage   appsv1alpha1.TransitionStage
	Code    Code
	Message string

	// Details of the user's module, as in Verdict.
	Details string

	// Numbers is nil where there is nothing to count.
	Numbers *Numbers

	// BlockingPods are names of pods that stand in the way, sorted; the first
	// MaxBlockingPods of them.
	BlockingPods []string

	// Since is when the request began to wait.
	Since time.Time

	// NextCheck is when the rule is asked again although nothing has changed; zero
	// when only a change helps.
	NextCheck time.Time
}

// MaxBlockingPods bounds Reason.BlockingPods.
const MaxBlockingPods = 5

// Numbers are those of an availablePolicy: a slot needs Needed, and Have is left of
// Limit.
type Numbers struct {
	Needed int
	Have   int
	Limit  int
}
