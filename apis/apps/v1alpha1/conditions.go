package v1alpha1

// Condition types, in the sense of kstatus.
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

	// ConditionGuarded is False while PodOps cannot guard some of the selected pods; absent
	// otherwise.
	ConditionGuarded = "Guarded"

	// ConditionBreakGlass is True while a break-glass annotation of the namespace, or of the
	// namespace of the manager, lets every pod pass the rules; absent otherwise.
	ConditionBreakGlass = "BreakGlass"

	// ConditionFrozen is True while the whole cluster is frozen, so that no pod gets a permit; absent otherwise.
	ConditionFrozen = "Frozen"

	// ConditionOwnersCounted is False while the desired number of pods of a workload cannot be
	// read. It is absent otherwise.
	ConditionOwnersCounted = "OwnersCounted"

	// ConditionRunning is True on a TrafficAdapter while its program renews its Lease.
	ConditionRunning = "Running"
)

// Condition reasons. They never change.
const (
	// ReasonEvaluated means that every rule of the newest generation is compiled and in use.
	ReasonEvaluated = "Evaluated"

	// ReasonPodsSelected means that the selector matches at least one pod.
	ReasonPodsSelected = "PodsSelected"

	// ReasonNoPodSelected means that the selector matches no pod that is under PodOps, so the
	// rules withhold no pod.
	ReasonNoPodSelected = "NoPodSelected"

	// ReasonMirrorPods means that selected pods are mirror pods of static pods.
	ReasonMirrorPods = "MirrorPods"

	// ReasonAnnotated means that an annotation is the cause.
	ReasonAnnotated = "Annotated"

	// ReasonOwnerUnreadable means that the numbers of a workload of selected pods cannot be read:
	// the right is missing, its API was removed, or it does not respond. The pods that the
	// workload had when its last permit was given count, for a while.
	ReasonOwnerUnreadable = "OwnerUnreadable"

	// ReasonCompiled means that the module of the PodTransitionPolicy compiles.
	ReasonCompiled = "Compiled"

	// ReasonInspectionFailed means that it is unknown whether the module of the
	// PodTransitionPolicy compiles, because of another error. The inspection is repeated.
	ReasonInspectionFailed = "InspectionFailed"

	// ReasonCompileFailed means that a rule, or the module of a PodTransitionPolicy, does not
	// compile. The pods it selects wait.
	ReasonCompileFailed = "CompileFailed"

	// ReasonEvaluationFailed means that the policy engine returned an error for a rule.
	// The pods it selects wait.
	ReasonEvaluationFailed = "EvaluationFailed"

	// ReasonNeverPasses means that an availablePolicy leaves no capacity even with every pod
	// available.
	ReasonNeverPasses = "NeverPasses"

	// ReasonPassesWithSurge means that an availablePolicy has capacity only while there are more available pods
	// than desired, as in a rollout with maxSurge. Deletes and evictions of available pods wait.
	ReasonPassesWithSurge = "PassesWithSurge"

	// ReasonNeverFinishes means that an availablePolicy selects a Deployment of the strategy Recreate,
	// whose rollouts never finish under it.
	ReasonNeverFinishes = "NeverFinishes"

	// ReasonPolicyTooExpensive means that a user's module repeatedly did not return in time
	// and is not evaluated any more. The pods it selects wait.
	ReasonPolicyTooExpensive = "PolicyTooExpensive"

	// ReasonPolicyNotFound means that a rule refers to a PodTransitionPolicy that does not exist.
	ReasonPolicyNotFound = "PolicyNotFound"

	// ReasonInvalidParameters means that rego.parameters do not fit the schema of the
	// PodTransitionPolicy.
	ReasonInvalidParameters = "InvalidParameters"

	// ReasonTooLarge means that the resource exceeds its size bounds and is not loaded. The pods
	// that the selector matches wait; a selector over its own bounds matches no pod.
	ReasonTooLarge = "TooLarge"

	// ReasonNotStalled means that no edit is required.
	ReasonNotStalled = "NotStalled"

	// ReasonRegistered means that admission uses the TrafficAdapter.
	ReasonRegistered = "Registered"

	// ReasonInvalidSelector means that a label selector of the TrafficAdapter is invalid. Its
	// entry matches no Service.
	ReasonInvalidSelector = "InvalidSelector"

	// ReasonTooMany means that the TrafficAdapter is not used, because MaxTrafficAdapters
	// others precede it by name.
	ReasonTooMany = "TooMany"

	// ReasonLeaseRenewed means that the program of the TrafficAdapter renews its Lease.
	ReasonLeaseRenewed = "LeaseRenewed"

	// ReasonLeaseExpired means that the Lease was not renewed in time, or was released.
	ReasonLeaseExpired = "LeaseExpired"

	// ReasonLeaseNotFound means that the Lease does not exist.
	ReasonLeaseNotFound = "LeaseNotFound"

	// ReasonLeaseUnreadable means that the manager cannot read the Lease.
	ReasonLeaseUnreadable = "LeaseUnreadable"

	// ReasonNoLease means that the TrafficAdapter names no Lease.
	ReasonNoLease = "NoLease"
)

// ConditionConsistent is a condition of Services behind a provider: whether the provider has the expected state.
const ConditionConsistent = "podops.dev/Consistent"
