package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Bounds of the lists in a status, independent of the number of pods.
const (
	// MaxStatusTargets is the maximum number of names in status.targets.
	MaxStatusTargets = 100

	// MaxStatusBlocked is the maximum number of entries in status.blocked.
	MaxStatusBlocked = 10

	// MaxStatusReserved is the maximum number of pods that one batch reserves.
	// Further pods follow in the next batch.
	MaxStatusReserved = 200

	// MaxStatusOwners is the maximum number of workloads whose pods a record counts.
	MaxStatusOwners = 200

	// MaxStatusRules is the maximum number of entries in status.rules: one for each rule.
	MaxStatusRules = 64

	// MaxStatusRejections is the maximum number of rejections in an entry of status.rules.
	MaxStatusRejections = 3

	// MaxStatusApprovals is the maximum number of approved revisions in an entry of status.rules, and
	// MaxStatusApprovers how many users each of them names.
	MaxStatusApprovals = 3
	MaxStatusApprovers = 10

	// MaxStatusTasks is the number of calls of one rule that may be open at once, and
	// MaxStatusTaskPods how many pods one call may contain. More pods wait.
	MaxStatusTasks    = 8
	MaxStatusTaskPods = 25

	// MaxStatusTaskHistory is the number of ended calls of one rule that are shown.
	MaxStatusTaskHistory = 5

	// MaxRecentPermits is the maximum number of permits in status.permits.recent.
	MaxRecentPermits = 100
)

// PodTransitionRuleStatus is the state that PodOps last observed. Its size does not grow
// with the number of pods.
type PodTransitionRuleStatus struct {
	// observedGeneration is the generation of the spec that the status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Ready, Reconciling, Stalled and Selecting.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// selected is the number of pods that the selector matches, without terminating and finished
	// pods.
	// +optional
	Selected int32 `json:"selected"`

	// desired is the number of pods that percentages are taken of: the desired replicas
	// of the owners of the selected pods, plus pods without such an owner.
	// +optional
	Desired int32 `json:"desired"`

	// available is the number of selected pods that may serve.
	// +optional
	Available int32 `json:"available"`

	// waiting is the number of selected pods that wait in a stage.
	// +optional
	Waiting int32 `json:"waiting"`

	// offTraffic is the number of selected pods that PodOps keeps off traffic: from
	// their permit until they are available again, or because of stay-offline.
	// Terminating and finished pods are left out.
	// +optional
	OffTraffic int32 `json:"offTraffic"`

	// blockedBy is the rule that the first entry of blocked waits for, and the code of
	// its reason: "availability (NoRoom)". Empty when no pod waits for a rule.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	BlockedBy string `json:"blockedBy,omitempty"`

	// targets are names of selected pods, sorted; the first 100 of them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=253
	Targets []string `json:"targets,omitempty"`

	// blocked are the first pods that wait because of a rule, oldest request first;
	// at most 10 of them. status.waiting counts all.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Blocked []BlockedPod `json:"blocked,omitempty"`

	// rules count the results of each rule, in the order of spec.rules. Disabled rules are
	// left out.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Rules []RuleStatus `json:"rules,omitempty"`

	// ruleStates contains the calls of webhook rules. A call is recorded before it is
	// sent, so that no restart sends it twice.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	RuleStates []RuleState `json:"ruleStates,omitempty"`

	// permits is the write-ahead record of permits. It is written before a permit is
	// written to a pod, under the resourceVersion of this resource.
	// +optional
	Permits *PermitRecord `json:"permits,omitempty"`
}

// BlockedPod describes why one pod waits.
type BlockedPod struct {
	// name of the pod.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// stage in which it waits.
	Stage TransitionStage `json:"stage"`

	// id of the lifecycle that waits.
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id"`

	// rule that did not pass, as "<PodTransitionRule>/<rule>".
	// +kubebuilder:validation:MaxLength=320
	Rule string `json:"rule"`

	// kind of the rule: the name of its field.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind,omitempty"`

	// reason is a stable code.
	// +kubebuilder:validation:MaxLength=63
	Reason string `json:"reason"`

	// message is the human-readable form of the reason, with its numbers.
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message"`

	// numbers that the reason is based on, for programs.
	// +optional
	Numbers *BlockedNumbers `json:"numbers,omitempty"`

	// blockingPods are the pods that the request waits for, sorted; the first 5 of them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=5
	// +kubebuilder:validation:items:MaxLength=253
	BlockingPods []string `json:"blockingPods,omitempty"`

	// since is when the request began to wait.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`

	// nextCheck is when the rule is evaluated again although nothing has changed.
	// +optional
	NextCheck *metav1.Time `json:"nextCheck,omitempty"`
}

// BlockedNumbers are the numbers of an availablePolicy.
type BlockedNumbers struct {
	// needed is the number of slots that the request needs.
	Needed int32 `json:"needed"`

	// have is the number of free slots.
	Have int32 `json:"have"`

	// limit is the number of all slots.
	Limit int32 `json:"limit"`
}

// RuleStatus counts the results of a rule. A request is one id of one pod that waits in the
// stage of the rule; it counts once, however often the rule is evaluated for it.
type RuleStatus struct {
	// name of the rule.
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// enforcement of the rule during the counts below. They start again from 0 when it, or
	// any other field of the rule, is edited.
	Enforcement Enforcement `json:"enforcement"`

	// generation of the spec since which the results are counted.
	Generation int64 `json:"generation"`

	// evaluated is the number of requests for which the rule was evaluated.
	Evaluated int64 `json:"evaluated"`

	// notApplicable is the number of requests in the stage of the rule that it did not apply
	// to: their type is not in conditions, filter does not match the pod, or the pod skips
	// the rule.
	// +optional
	NotApplicable int64 `json:"notApplicable,omitempty"`

	// withheld is the number of requests that the rule withheld at least once.
	Withheld int64 `json:"withheld"`

	// wouldWithhold is the number of requests that the rule would have withheld with the
	// enforcement Enforce.
	WouldWithhold int64 `json:"wouldWithhold"`

	// lastRejections are the newest of the withheld, or would-be withheld, requests,
	// newest first; at most 3.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=3
	LastRejections []Rejection `json:"lastRejections,omitempty"`

	// lastApprovals are the revisions that a rule of kind approval let replace pods, newest first; at most 3.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=3
	LastApprovals []ApprovedRevision `json:"lastApprovals,omitempty"`

	// quarantined is set while the rule is not evaluated, with the reason. An edit of the rule,
	// or of its PodTransitionPolicy, lifts the quarantine, and so does a new value of the
	// annotation podtransitionrule.kusionstack.io/lift-quarantine of the object.
	// +optional
	Quarantined *Quarantine `json:"quarantined,omitempty"`
}

// RuleState contains the calls of one rule.
type RuleState struct {
	// name of the rule.
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// webhookStatus contains the calls of a webhook rule.
	// +optional
	WebhookStatus *WebhookStatus `json:"webhookStatus,omitempty"`
}

// WebhookStatus contains the calls of one webhook rule.
type WebhookStatus struct {
	// taskStates are the calls that are in effect: open calls, calls that approved pods which
	// still wait, and calls that are repeated for their pods later.
	// +optional
	// +listType=map
	// +listMapKey=traceId
	// +kubebuilder:validation:MaxItems=32
	TaskStates []TaskInfo `json:"taskStates,omitempty"`

	// history are the last calls that ended within 10 minutes, newest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=5
	History []TaskInfo `json:"history,omitempty"`
}

// TaskPhase is the progress of a call.
// +kubebuilder:validation:Enum=Posting;Polling;Finished;Failed
type TaskPhase string

const (
	// TaskPosting means that the POST is recorded, and is sent now or about to be.
	TaskPosting TaskPhase = "Posting"

	// TaskPolling means that the service has not finished, and is polled.
	TaskPolling TaskPhase = "Polling"

	// TaskFinished means that the service has sent its final response. Pods that it did not
	// approve are rejected.
	TaskFinished TaskPhase = "Finished"

	// TaskFailed means that the service could not be called, or did not finish in time.
	TaskFailed TaskPhase = "Failed"
)

// TaskInfo is one call: a POST, and the polls that follow it.
type TaskInfo struct {
	// traceId of the POST. It is sent once under this id.
	// +kubebuilder:validation:MaxLength=64
	TraceID string `json:"traceId"`

	// taskId that the service assigned; empty before its response, and without poll.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	TaskID string `json:"taskId,omitempty"`

	// queryKey is the query parameter of the poll that contains the id; "task-id,trace-id"
	// for both.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	QueryKey string `json:"queryKey,omitempty"`

	Phase TaskPhase `json:"phase"`

	// ruleGeneration is the generation of the PodTransitionRule at the time of the call.
	// Approvals count for this generation only.
	RuleGeneration int64 `json:"ruleGeneration"`

	// processing are the pods of the call that are not approved.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=25
	Processing []TaskPod `json:"processing,omitempty"`

	// approved are the pods that the service approved.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=25
	Approved []TaskPod `json:"approved,omitempty"`

	// beginTime of the call. Its timeout is measured from here, across restarts.
	BeginTime metav1.Time `json:"beginTime"`

	// lastTime is the time of the last change.
	LastTime metav1.Time `json:"lastTime"`

	// nextTime is when the call may be repeated for the pods of a failed call.
	// +optional
	NextTime *metav1.Time `json:"nextTime,omitempty"`

	// attempts is the number of calls for these pods that have failed in a row.
	// +optional
	Attempts int32 `json:"attempts,omitempty"`

	// answered is true once the service has responded for the pods in processing: it did
	// not approve them, or has not finished. From then on failurePolicy Ignore does not let
	// them pass, independent of the result of later calls.
	// +optional
	Answered bool `json:"answered,omitempty"`

	// reason is the class of a failure.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Reason string `json:"reason,omitempty"`

	// message of the service, or of the error.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}

// TaskPod is a pod of a call.
type TaskPod struct {
	// uid of the pod.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=128
	UID types.UID `json:"uid"`

	// name of the pod.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// id of the lifecycle that waits.
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id"`

	// generation is the attempt of the lifecycle, the value of the label that marks it as
	// waiting: the approval counts for this attempt only.
	// +kubebuilder:validation:MaxLength=63
	Generation string `json:"generation"`
}

// Rejection is one request that a rule withheld, or would have withheld.
type Rejection struct {
	// pod is the name of the pod.
	// +kubebuilder:validation:MaxLength=253
	Pod string `json:"pod"`

	// id of the lifecycle.
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id"`

	// reason is a stable code.
	// +kubebuilder:validation:MaxLength=63
	Reason string `json:"reason"`

	// message is the human-readable form of the reason, with its numbers.
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message"`

	// time of the decision.
	Time metav1.Time `json:"time"`
}

// ApprovedRevision is a revision of a workload that users have approved.
type ApprovedRevision struct {
	// workload is the kind and the name of the workload.
	// +kubebuilder:validation:MaxLength=270
	Workload string `json:"workload"`

	// revision is the hash of its pod template.
	// +kubebuilder:validation:MaxLength=64
	Revision string `json:"revision"`

	// approvedBy are the users who have approved it, sorted; the first 10 of them.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:MaxLength=256
	ApprovedBy []string `json:"approvedBy"`

	// reasons are the reasons that they gave, each after its user.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Reasons string `json:"reasons,omitempty"`

	// time at which the first pod passed.
	Time metav1.Time `json:"time"`
}

// Quarantine stops the evaluation of a rule. All requests that it applies to wait.
type Quarantine struct {
	// since is when the rule was put under quarantine.
	Since metav1.Time `json:"since"`

	// source is a hash of the module that did not return in time. Another module is not
	// under quarantine.
	// +kubebuilder:validation:MaxLength=64
	Source string `json:"source"`

	// message is the human-readable reason.
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message"`

	// lift is the value of the annotation podtransitionrule.kusionstack.io/lift-quarantine
	// when the quarantine began. Another value that is not empty ends the quarantine.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Lift string `json:"lift,omitempty"`
}

// PermitRecord names the pods to which a permit may be written, and how recent the view
// of a later writer must be before it may extend the record.
type PermitRecord struct {
	// viewResourceVersion is the resourceVersion up to which the pods had been seen
	// when the batch was computed. The next batch is computed from a view that
	// reaches at least this far, so that it contains every outcome that the batch
	// relied on.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	ViewResourceVersion string `json:"viewResourceVersion,omitempty"`

	// reserved are the pods of the batch, sorted by UID. A pod with a newer
	// resourceVersion is no longer reserved: the write of this batch can no longer
	// succeed.
	// +optional
	// +listType=map
	// +listMapKey=uid
	// +kubebuilder:validation:MaxItems=200
	Reserved []ReservedPod `json:"reserved,omitempty"`

	// recent are the last permits, oldest first; kept only while a rule reads them
	// (input.permits).
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Recent []RecentPermit `json:"recent,omitempty"`

	// owners are the numbers of pods that workloads of kinds outside of Kubernetes had when
	// their last permit was given, sorted by UID. The desired number of pods of such a
	// workload is read from its scale, if it has a scale, and may not be known at a restart.
	// While the number is not known, a pod that is missing since then counts as desired for
	// 2 minutes, and for 10 minutes while the workload cannot be read.
	// +optional
	// +listType=map
	// +listMapKey=uid
	// +kubebuilder:validation:MaxItems=200
	Owners []OwnerPods `json:"owners,omitempty"`
}

// DisruptionPermits is the value of PermitsAnnotationKey: a PermitRecord in few bytes.
// +kubebuilder:object:generate=false
type DisruptionPermits struct {
	// ViewResourceVersion is that of a PermitRecord.
	ViewResourceVersion string `json:"viewResourceVersion,omitempty"`

	// Reserved are the resourceVersions of the reserved pods by UID; at most MaxStatusReserved.
	Reserved map[types.UID]string `json:"reserved,omitempty"`
}

// OwnerPods is the number of pods of one workload.
type OwnerPods struct {
	// uid of the workload.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=128
	UID types.UID `json:"uid"`

	// pods that counted, including the permitted pod.
	// +kubebuilder:validation:Minimum=0
	Pods int32 `json:"pods"`
}

// RecentPermit is a permit that was reserved.
type RecentPermit struct {
	// pod is the name of the pod.
	// +kubebuilder:validation:MaxLength=253
	Pod string `json:"pod"`

	// time of the reservation.
	Time metav1.Time `json:"time"`
}

// ReservedPod is one slot of a batch.
type ReservedPod struct {
	// uid of the pod.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=128
	UID types.UID `json:"uid"`

	// name of the pod, for readers: uid identifies it.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// resourceVersion of the pod at the time of the decision. The permit is written on
	// condition that the pod is still at it.
	// +kubebuilder:validation:MaxLength=128
	ResourceVersion string `json:"resourceVersion"`
}
