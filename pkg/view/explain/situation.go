package explain

// Situation is a kind of reason. It never changes: docs/explain.md has a section of this name.
type Situation string

// Anchor returns the place of the situation in the documentation.
func (s Situation) Anchor() string { return "docs/explain.md#" + string(s) }

// The situations of pods that rules and budgets withhold.
const (
	LabelMismatch    Situation = "label-mismatch"
	NoRoom           Situation = "no-room"
	WaitsItsTurn     Situation = "waits-its-turn"
	NeverPasses      Situation = "never-passes"
	PassesWithSurge  Situation = "passes-with-surge"
	Frozen           Situation = "frozen"
	NotApproved      Situation = "not-approved"
	RevisionDenied   Situation = "revision-denied"
	NotAllowed       Situation = "not-allowed"
	Denied           Situation = "denied"
	WrongType        Situation = "wrong-type"
	Undefined        Situation = "undefined"
	Timeout          Situation = "timeout"
	Quarantined      Situation = "quarantined"
	EvaluationFailed Situation = "evaluation-failed"
	CompileFailed    Situation = "compile-failed"
	BadParameters    Situation = "invalid-parameters"
	PolicyNotFound   Situation = "policy-not-found"
	TooLarge         Situation = "too-large"
	NotReached       Situation = "not-reached"
	RuleDeleted      Situation = "rule-deleted"

	WebhookPending      Situation = "webhook-pending"
	WebhookProcessing   Situation = "webhook-processing"
	WebhookRejected     Situation = "webhook-rejected"
	WebhookFailed       Situation = "webhook-failed"
	WebhookUnresolvable Situation = "webhook-unresolvable"
	WebhookCircuitOpen  Situation = "webhook-circuit-open"
	WebhookSecret       Situation = "webhook-secret"

	DisruptionBudget Situation = "disruption-budget"
	BudgetUnknown    Situation = "budget-unknown"

	NotReported      Situation = "not-reported"
	RollingUpdateMax Situation = "rolling-update-max-unavailable"
)

// The situations of an operation that its rules have passed, and of pods that are not available.
const (
	TrafficStillOn       Situation = "traffic-still-on"
	UnknownFinalizer     Situation = "unknown-finalizer"
	EmployerGone         Situation = "employer-gone"
	AdapterAway          Situation = "adapter-away"
	ConnectionsLeft      Situation = "connections-left"
	Kubelet              Situation = "kubelet"
	ReadinessGate        Situation = "readiness-gate"
	Settling             Situation = "settling"
	WaitsForOperation    Situation = "waits-for-operation"
	OperationNotEnded    Situation = "operation-not-ended"
	DeletePermitted      Situation = "delete-permitted"
	OtherOperation       Situation = "other-operation"
	ContainersNotReady   Situation = "containers-not-ready"
	NotScheduled         Situation = "not-scheduled"
	TrafficNotOn         Situation = "traffic-not-on"
	StayOffline          Situation = "stay-offline"
	InvalidLifecycle     Situation = "invalid-lifecycle"
	BadAvailability      Situation = "bad-available-conditions"
	BadAnnotation        Situation = "bad-annotation"
	Terminating          Situation = "terminating"
	TerminatingFinalizer Situation = "terminating-finalizer"
	ManagerAway          Situation = "manager-away"
)

// The situations that hold nothing and complete the picture.
const (
	NotControlled    Situation = "not-controlled"
	MirrorPod        Situation = "mirror-pod"
	GateMissing      Situation = "gate-missing"
	DeleteHeld       Situation = "delete-held"
	EvictionHeld     Situation = "eviction-held"
	ScaleDownKept    Situation = "scale-down-kept"
	HoldBounded      Situation = "hold-bounded"
	HoldExpired      Situation = "hold-expired"
	BreakGlass       Situation = "break-glass"
	ClusterGlass     Situation = "break-glass-everywhere"
	ExemptRevision   Situation = "exempt-revision"
	WouldWithhold    Situation = "would-withhold"
	SkipsRules       Situation = "skips-rules"
	NoRuleSelects    Situation = "no-rule"
	OperationOfPodOp Situation = "pod-operation"
)

// The situations of workloads and rules.
const (
	RolloutPaused   Situation = "rollout-paused"
	RolloutDeadline Situation = "rollout-deadline"
	RolloutFailure  Situation = "rollout-failure"
	RuleNotSeen     Situation = "rule-not-observed"
	NeverFinishes   Situation = "never-finishes"
	SelectsNothing  Situation = "selects-nothing"
	Unguarded       Situation = "unguarded"
	OwnerUnreadable Situation = "owner-unreadable"
)

// Situations returns all situations.
func Situations() []Situation {
	return []Situation{
		LabelMismatch, NoRoom, WaitsItsTurn, NeverPasses, PassesWithSurge, Frozen, NotApproved, RevisionDenied, NotAllowed, Denied, WrongType,
		Undefined, Timeout, Quarantined, EvaluationFailed, CompileFailed, BadParameters, PolicyNotFound, TooLarge, NotReached, RuleDeleted,
		WebhookPending, WebhookProcessing, WebhookRejected, WebhookFailed, WebhookUnresolvable, WebhookCircuitOpen, WebhookSecret,
		DisruptionBudget, BudgetUnknown, NotReported, RollingUpdateMax,
		TrafficStillOn, UnknownFinalizer, EmployerGone, AdapterAway, ConnectionsLeft, Kubelet, ReadinessGate, Settling, WaitsForOperation,
		OperationNotEnded, DeletePermitted, OtherOperation, ContainersNotReady, NotScheduled, TrafficNotOn, StayOffline, InvalidLifecycle,
		BadAvailability, BadAnnotation, Terminating, TerminatingFinalizer, ManagerAway,
		NotControlled, MirrorPod, GateMissing, DeleteHeld, EvictionHeld, ScaleDownKept, HoldBounded, HoldExpired, BreakGlass,
		ClusterGlass, ExemptRevision, WouldWithhold, SkipsRules, NoRuleSelects, OperationOfPodOp,
		RolloutPaused, RolloutDeadline, RolloutFailure, RuleNotSeen, NeverFinishes, SelectsNothing, Unguarded, OwnerUnreadable,
	}
}
