package v1alpha1

// Labels with an id. The key is the prefix, a slash and the id of one lifecycle;
// an id is a label name of at most 63 characters that its operation controller
// chooses. Values are Unix time in nanoseconds, in decimal, unless noted.
const (
	// OperatingLabelPrefix requests an operation. The operation controller adds it
	// together with operation-type, and removes it when it is done: before
	// operate was granted that is a cancel, afterwards a finish.
	OperatingLabelPrefix = "operating.podopslifecycle.kusionstack.io"

	// OperationTypeLabelPrefix names the kind of operation ("update", "delete").
	// The operation controller adds it together with operating. Admission removes
	// it with operating. Changing it on a running id voids the id's permit.
	OperationTypeLabelPrefix = "operation-type.podopslifecycle.kusionstack.io"

	// UndoOperationTypeLabelPrefix cancels an id; its value is the type of that id.
	// The operation controller adds it; admission removes it, with every other
	// label of the id, in the same request.
	UndoOperationTypeLabelPrefix = "undo-operation-type.podopslifecycle.kusionstack.io"

	// PreCheckLabelPrefix marks an id that waits for the PreCheck rules. Its value
	// is the attempt of the lifecycle: a permit counts for this value only.
	// PodOps adds it at begin and removes it at permit.
	PreCheckLabelPrefix = "pre-check.podopslifecycle.kusionstack.io"

	// PreCheckedLabelPrefix marks an id whose PreCheck rules have passed. PodOps
	// adds it at permit and removes it at finish.
	PreCheckedLabelPrefix = "pre-checked.podopslifecycle.kusionstack.io"

	// OperationPermissionLabelPrefix is followed by an operation TYPE, not an id:
	// operations of this type on the pod are allowed. PodOps adds it at permit and
	// removes it with the last permitted id of the type.
	OperationPermissionLabelPrefix = "operation-permission.podopslifecycle.kusionstack.io"

	// PrepareLabelPrefix requests that service controllers take traffic off the pod and
	// then remove their protection finalizer. PodOps adds it at permit and removes it at
	// operate.
	PrepareLabelPrefix = "prepare.podopslifecycle.kusionstack.io"

	// PreparingLabelPrefix is PrepareLabelPrefix under the name that deployed
	// controllers read: set and removed together with it.
	PreparingLabelPrefix = "preparing.podopslifecycle.kusionstack.io"

	// OperateLabelPrefix allows the operation controller of the id to operate on
	// the pod now. PodOps adds it once traffic is off, and removes it at finish.
	OperateLabelPrefix = "operate.podopslifecycle.kusionstack.io"

	// OperatedLabelPrefix marks an id whose operation is over. PodOps adds it at
	// finish and removes it when the pod becomes available.
	OperatedLabelPrefix = "operated.podopslifecycle.kusionstack.io"

	// DoneOperationTypeLabelPrefix keeps the type of a finished id. PodOps adds it
	// at finish and removes it when the pod becomes available.
	DoneOperationTypeLabelPrefix = "done-operation-type.podopslifecycle.kusionstack.io"

	// UncheckedLabelPrefix marks an id that was begun again, or whose type was changed,
	// after it had been allowed to operate and before PostCheck rules have passed: the pod
	// stays off traffic while it waits. Its value is the type of that operation. PodOps adds
	// it at begin and removes it at finish, when PostCheckLabelPrefix replaces it.
	UncheckedLabelPrefix = "unchecked.podopslifecycle.kusionstack.io"

	// BeganLabelPrefix records when the lifecycle of an id began, as the attempt of its begin. PodOps
	// adds it at begin if it exports traces, and removes it with the last label of the id.
	BeganLabelPrefix = "began.podopslifecycle.kusionstack.io"

	// PostCheckLabelPrefix marks an id that waits for the PostCheck rules. PodOps
	// adds it at finish and removes it at post permit.
	PostCheckLabelPrefix = "post-check.podopslifecycle.kusionstack.io"

	// PostCheckedLabelPrefix marks an id whose PostCheck rules have passed. PodOps
	// adds it at post permit and removes it when the pod becomes available.
	PostCheckedLabelPrefix = "post-checked.podopslifecycle.kusionstack.io"

	// CompleteLabelPrefix requests that service controllers put traffic back on the pod
	// and their protection finalizer with it. PodOps adds it at post permit and
	// removes it when the pod becomes available.
	CompleteLabelPrefix = "complete.podopslifecycle.kusionstack.io"

	// CompletingLabelPrefix is CompleteLabelPrefix under the name that deployed
	// controllers read: set and removed together with it.
	CompletingLabelPrefix = "completing.podopslifecycle.kusionstack.io"
)

// LifecycleDomain ends every label key of the lifecycle, before the slash.
const LifecycleDomain = "podopslifecycle.kusionstack.io"

// Labels without an id.
const (
	// ControlLabelKey selects a pod (or a Service) into PodOps when its value is
	// exactly "true". The user sets it in the pod template; removing it from a pod
	// ends the pod's lifecycles.
	ControlLabelKey = "kusionstack.io/control"

	// ControlLabelValue is the only value of ControlLabelKey that counts.
	ControlLabelValue = "true"

	// ServiceAvailableLabelKey marks a pod that may serve. PodOps adds it when the
	// pod is fit to serve, every id has completed and every expected finalizer is
	// present, and removes it at permit or when the pod stops being fit. Value:
	// Unix nanoseconds.
	ServiceAvailableLabelKey = LifecycleDomain + "/service-available"

	// StayOfflineLabelKey keeps a pod off traffic while it is present, with any value:
	// gate False and not available. The user adds and removes it.
	StayOfflineLabelKey = LifecycleDomain + "/stay-offline"

	// CreatingLabelKey marks a newly created pod. Its operation controller adds it;
	// PodOps removes it with the first service-available.
	CreatingLabelKey = LifecycleDomain + "/creating"

	// RecreatingLabelKey marks a pod that an update re-created and that has not been
	// available since. Its operation controller adds it; PodOps removes it with
	// service-available. (The wire name is "completing", without an id.)
	RecreatingLabelKey = LifecycleDomain + "/completing"

	// ToDeleteLabelKey requests the deletion of the pod once its rules permit it, with any
	// value. The user or an operation controller adds it; removing it cancels the request.
	ToDeleteLabelKey = "collaset.kusionstack.io/to-delete"

	// PreparingToDeleteLabelKey announces that the coming operation removes the pod.
	// The operation controller adds it at begin; PodOps never changes it.
	PreparingToDeleteLabelKey = LifecycleDomain + "/preparing-to-delete"
)

// Annotations.
const (
	// AvailableConditionsAnnotationKey holds a JSON AvailableConditions: which
	// finalizers must be on the pod before it may become available. Service
	// controllers and admission write it.
	AvailableConditionsAnnotationKey = "pod.kusionstack.io/available-conditions"

	// SettleTimeAnnotationKey holds a duration such as "10s", at most ten minutes: the time
	// for which the pod must have been unready before it is operated on. Absent: the settle time
	// of the manager if a Service selects the pod, otherwise zero. The user sets it.
	SettleTimeAnnotationKey = LifecycleDomain + "/settle-time"

	// DrainEndpointAnnotationKey holds the port and path of the pod's drain endpoint, such as ":8081/drain". PodOps
	// sends POST requests to it once traffic is off, and operates on the pod after the answer 200 or 204: no connection is
	// left. The user sets it.
	DrainEndpointAnnotationKey = LifecycleDomain + "/drain-endpoint"

	// DrainTimeoutAnnotationKey holds a duration such as "2m", above zero and at most one hour: the time after which the pod
	// is operated on although its drain endpoint has not confirmed that. Absent: 30 s. The user sets it.
	DrainTimeoutAnnotationKey = LifecycleDomain + "/drain-timeout"

	// GateSyncPolicyAnnotationKey selects whether operations on the pod continue when its
	// kubelet does not make it unready: GateSyncContinue or GateSyncHold. Absent: the
	// setting of the manager. The user sets it.
	GateSyncPolicyAnnotationKey = LifecycleDomain + "/gate-sync-policy"

	// GateSyncContinue lets operations continue after the gate sync timeout.
	GateSyncContinue = "Continue"

	// GateSyncHold makes operations wait until the kubelet makes the pod unready.
	GateSyncHold = "Hold"

	// PendingDeleteAnnotationKey holds a JSON PendingDelete: the delete or eviction of the pod
	// for which PodOps has begun the lifecycle PodDeleteID. It counts only together with that
	// lifecycle. PodOps alone writes it.
	PendingDeleteAnnotationKey = LifecycleDomain + "/pending-delete"

	// RequestersAnnotationKey holds a JSON object: the labels operating and to-delete of the pod, each with the LabelRequester
	// who set it. Admission alone writes it.
	RequestersAnnotationKey = LifecycleDomain + "/requesters"

	// UnstuckAnnotationKey holds a JSON Unstuck: who last changed the pod by kubectl podops unstick, and why.
	// No decision depends on it.
	UnstuckAnnotationKey = LifecycleDomain + "/unstuck"

	// SkipRulesAnnotationKey holds a JSON SkipRules: names of rules that this pod
	// skips. The user sets it.
	SkipRulesAnnotationKey = "podtransitionrule.kusionstack.io/skip-rule-conditions"

	// BreakGlassAnnotationKey lets a pod pass every PreCheck rule and PodDisruptionBudget. On a
	// Namespace it applies to all pods there, and on the namespace of the manager to all pods of the
	// cluster. Its value is the reason, which events and metrics report; an empty value has no
	// effect. The user sets and removes it.
	BreakGlassAnnotationKey = "podtransitionrule.kusionstack.io/break-glass"

	// FreezeAnnotationKey on the namespace of the manager withholds every PreCheck permit in the cluster. Its value is the
	// end, in RFC 3339 or "-" for none, a space, and the message with the user and the reason, which admission checks the
	// user of. kubectl podops freeze sets it, and thaw removes it.
	FreezeAnnotationKey = "podtransitionrule.kusionstack.io/freeze"

	// IgnoreUsersAnnotationKey on a PodTransitionPolicy, with the value "true", allows an edit
	// that the parameters of rules do not fit, and a delete while rules refer to the
	// policy. These rules then withhold their pods. The user sets and removes it.
	IgnoreUsersAnnotationKey = "podtransitionpolicy.kusionstack.io/ignore-users"

	// LiftQuarantineAnnotationKey on a PodTransitionRule ends the quarantine of all of its
	// rules once for each new value, of which the first MaxLiftBytes bytes count. The user
	// sets it.
	LiftQuarantineAnnotationKey = "podtransitionrule.kusionstack.io/lift-quarantine"
)

// Annotations of PodOps on ReplicaSets, and on the pods that leave them.
const (
	// WokenAnnotationKey holds, on an old ReplicaSet in a rolling update, when PodOps has last woken the
	// controller of Deployments, in the form of RFC 3339: pods of the ReplicaSet may be deleted. It gives no right,
	// and is removed with the next step.
	WokenAnnotationKey = LifecycleDomain + "/woken"

	// DesiredReplicasAnnotationKey and LowestReplicasAnnotationKey are annotations of earlier versions, which
	// record the requests that admission keeps. Admission writes the first for them, nothing reads it, and PodOps
	// removes both.
	DesiredReplicasAnnotationKey = LifecycleDomain + "/desired-replicas"
	LowestReplicasAnnotationKey  = LifecycleDomain + "/lowest-replicas"

	// PreviousDeletionCostAnnotationKey marks a pod for which PodOps itself began PodDeleteID
	// on behalf of its ReplicaSet. Its value is the annotation
	// controller.kubernetes.io/pod-deletion-cost from before, empty when it was absent.
	PreviousDeletionCostAnnotationKey = LifecycleDomain + "/previous-deletion-cost"

	// SurgeAnnotationKey holds a JSON Surge, on a pod in whose place its Deployment starts another pod
	// before it goes. PodOps alone writes it.
	SurgeAnnotationKey = LifecycleDomain + "/surge"
)

// PermitsAnnotationKey holds, on a PodDisruptionBudget, a JSON DisruptionPermits: the record of the permits that take its
// slots. PodOps alone writes it, and removes it when it is uninstalled.
const PermitsAnnotationKey = "podtransitionrule.kusionstack.io/permits"

// PodOperationAnnotationPrefix is, with the UID of a PodOperation after a slash, the key of an
// annotation on a pod: the record of the actions of the PodOperation on the pod, as JSON. PodOps
// writes it with the action and at its end, and removes records of ended PodOperations when another
// begins.
const PodOperationAnnotationPrefix = "podoperation.kusionstack.io"

// PodOperationIDPrefix is, with the UID of a PodOperation after it, the id of its lifecycles.
const PodOperationIDPrefix = "podoperation-"

// MaxLiftBytes is the number of bytes in the value of LiftQuarantineAnnotationKey that count.
const MaxLiftBytes = 64

// DetailAnnotationPrefix is, with the name of a PodTransitionRule after a slash
// (DetailAnnotationKey), the key of an annotation on a waiting pod: a JSON Detail. It is
// written when the Detail changes, and removed with the permit.
const DetailAnnotationPrefix = "detail.podtransitionrule.kusionstack.io"

// MaxAnnotationBytes bounds an annotation that PodOps parses. A longer value counts as malformed.
const MaxAnnotationBytes = 32 << 10

// AvailableConditions is the value of AvailableConditionsAnnotationKey.
// +kubebuilder:object:generate=false
type AvailableConditions struct {
	// ExpectedFinalizers maps an employer ("<Kind>/<namespace>/<name>") to the
	// protection finalizer that it puts on the pod when traffic is on.
	ExpectedFinalizers map[string]string `json:"expectedFinalizers,omitempty"`
}

// SkipRules is the value of SkipRulesAnnotationKey.
// +kubebuilder:object:generate=false
type SkipRules struct {
	// SkipRules are rule names, of any PodTransitionRule.
	SkipRules []string `json:"skipRules,omitempty"`
}

// Finalizers and the readiness gate.
const (
	// PodOperationFinalizer keeps a PodOperation until no pod has one of its lifecycles. PodOps
	// adds it before it begins the first lifecycle, and removes it.
	PodOperationFinalizer = "podoperation.kusionstack.io/lifecycles"

	// ProtectionFinalizerPrefix starts every finalizer that holds back operate. A
	// service controller adds such a finalizer to a pod whose traffic is on, and
	// removes it once traffic is off.
	ProtectionFinalizerPrefix = "prot.podopslifecycle.kusionstack.io"

	// ServiceReadyGate is the readiness gate that admission adds to every pod it
	// sees created, and the type of the corresponding pod condition.
	ServiceReadyGate = "pod.kusionstack.io/service-ready"

	// ServiceReadyMessage is the message of the condition ServiceReadyGate.
	ServiceReadyMessage = "updated by PodOpsLifecycle"

	// ReasonKubeletNotSyncing is the reason of the condition ServiceReadyGate while the
	// kubelet has not followed the gate for the gate sync timeout.
	ReasonKubeletNotSyncing = "KubeletNotSyncing"

	// ReasonPreparing and ReasonCompleting are the reasons of the condition
	// ServiceReadyGate while the pod has waited for 10 seconds for its traffic to go off
	// or to come on. The message names the employers and finalizers then, after
	// ServiceReadyMessage, which deployed clients may look for. The condition has no
	// reason and no other message otherwise, so that it costs no request of its own.
	ReasonPreparing  = "Preparing"
	ReasonCompleting = "Completing"

	// ConditionInvalidLifecycle is True on a pod that is operating without the type of the
	// operation: nothing progresses for that id. It is removed when the labels are corrected.
	ConditionInvalidLifecycle = LifecycleDomain + "/InvalidLifecycle"

	// ReasonInvalidLifecycle is the reason of ConditionInvalidLifecycle.
	ReasonInvalidLifecycle = "InvalidLifecycle"

	// ConditionGateMissing is True on a pod without ServiceReadyGate that was permitted an
	// operation: only finalizers keep its traffic off.
	ConditionGateMissing = LifecycleDomain + "/GateMissing"

	// ReasonGateMissing is the reason of ConditionGateMissing, and of ConditionGuarded when a
	// PodTransitionRule selects such pods.
	ReasonGateMissing = "GateMissing"
)

// TemplateAuthorAnnotationKey records who wrote the pod template of a Deployment, StatefulSet or DaemonSet whose pods are under PodOps:
// a line for each change of the template, with its hash (PodOperationApprovalSpec.Revision), a space, and the name of the user.
// Admission adds it; the last line with the hash of a template counts.
const TemplateAuthorAnnotationKey = "podtransitionrule.kusionstack.io/template-author"

// DeploymentRevisionAnnotationKey is set by the controller of Deployments on ReplicaSets.
const DeploymentRevisionAnnotationKey = "deployment.kubernetes.io/revision"

// Ids and types that PodOps itself begins.
const (
	// PodDeleteID is the id of a lifecycle that ends with the deletion of the pod.
	PodDeleteID = "pod-delete"

	// DeleteOperationType is the type of PodDeleteID.
	DeleteOperationType = "delete"

	// PodCreateID is the id with which a new pod waits for its PostCheck rules.
	PodCreateID = "pod-create"

	// CreateOperationType is the type of PodCreateID.
	CreateOperationType = "create"
)

// IsControlled reports whether an object with the labels is under PodOps.
func IsControlled(labels map[string]string) bool { return labels[ControlLabelKey] == ControlLabelValue }
