package v1alpha1

// Condition types of PodTransitionRule and PodTransitionPolicy, in the sense of kstatus.
const (
	// ConditionReady is True when every rule compiles and is evaluated.
	ConditionReady = "Ready"

	// ConditionReconciling is True while the newest generation is not yet evaluated.
	ConditionReconciling = "Reconciling"

	// ConditionStalled is True when a rule cannot be evaluated or can never pass,
	// and only an edit of the resource helps.
	ConditionStalled = "Stalled"

	// ConditionSelecting is True when the selector of a PodTransitionRule matches a pod.
	ConditionSelecting = "Selecting"
)

// Condition reasons. They never change.
const (
	// ReasonEvaluated: every rule of the newest generation is compiled and in use.
	ReasonEvaluated = "Evaluated"

	// ReasonPodsSelected: the selector matches at least one pod.
	ReasonPodsSelected = "PodsSelected"

	// ReasonNoPodSelected: the selector matches no pod that is under PodOps, so the rules
	// hold nothing.
	ReasonNoPodSelected = "NoPodSelected"

	// ReasonCompiled: the module of the PodTransitionPolicy compiles.
	ReasonCompiled = "Compiled"

	// ReasonInspectionFailed: whether the module of the PodTransitionPolicy compiles is
	// not known, because of an error that has nothing to do with it. It is tried again.
	ReasonInspectionFailed = "InspectionFailed"

	// ReasonCompileFailed: a rule, or the module of a PodTransitionPolicy, does not
	// compile. The pods it selects wait.
	ReasonCompileFailed = "CompileFailed"

	// ReasonEvaluationFailed: the policy engine answered with an error for a rule.
	// The pods it selects wait.
	ReasonEvaluationFailed = "EvaluationFailed"

	// ReasonNeverPasses: an availablePolicy leaves no room even with every pod
	// available.
	ReasonNeverPasses = "NeverPasses"

	// ReasonPolicyTooExpensive: a user's module did not answer in time again and again
	// and is not asked any more. The pods it selects wait.
	ReasonPolicyTooExpensive = "PolicyTooExpensive"

	// ReasonPolicyNotFound: a rule refers to a PodTransitionPolicy that does not exist.
	ReasonPolicyNotFound = "PolicyNotFound"

	// ReasonInvalidParameters: rego.parameters do not fit the schema of the
	// PodTransitionPolicy.
	ReasonInvalidParameters = "InvalidParameters"

	// ReasonTooLarge: the resource exceeds its size bounds and is not loaded. The pods that
	// the selector matches wait; a selector over its own bounds matches none.
	ReasonTooLarge = "TooLarge"

	// ReasonNotStalled: nothing needs an edit.
	ReasonNotStalled = "NotStalled"
)
