package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Bounds of the lists in a status, whatever the number of pods.
const (
	// MaxStatusTargets is how many names status.targets holds at most.
	MaxStatusTargets = 100

	// MaxStatusBlocked is how many entries status.blocked holds at most.
	MaxStatusBlocked = 10

	// MaxStatusReserved is how many pods one batch may reserve. The rest follows in
	// the next batch.
	MaxStatusReserved = 200

	// MaxStatusOwners is of how many workloads a record counts the pods.
	MaxStatusOwners = 200

	// MaxStatusRules is how many entries status.rules holds at most: one for each rule.
	MaxStatusRules = 64

	// MaxStatusRejections is how many rejections an entry of status.rules holds at most.
	MaxStatusRejections = 3

	// MaxStatusTasks is how many calls of one rule may be open at once, and
	// MaxStatusTaskPods how many pods one call may be about. More pods wait.
	MaxStatusTasks    = 8
	MaxStatusTaskPods = 25

	// MaxStatusTaskHistory is how many ended calls of one rule are shown.
	MaxStatusTaskHistory = 5

	// MaxRecentPermits is how many permits status.permits.recent holds at most.
	MaxRecentPermits = 100
)

// PodTransitionRuleStatus is what PodOps last saw. Its size does not grow with the
// number of pods.
type PodTransitionRuleStatus struct {
	// observedGeneration is the generation of the spec that the rest of the status
	// is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Ready, Reconciling, Stalled and Selecting.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// selected is the number of pods that the selector matches, terminating and
	// finished ones left out.
	// +optional
	Selected int32 `json:"selected"`

	// desired is the number of pods that percentages are taken of: the replicas that
	// the owners of the selected pods want, plus pods without such an owner.
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
	// Terminating and finished ones are left out.
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

	// rules say how each rule fares, in the order of spec.rules. Disabled ones are
	// left out.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Rules []RuleStatus `json:"rules,omitempty"`

	// ruleStates has the calls of webhook rules. A call is written down before it is
	// made, so that no restart makes it twice.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	RuleStates []RuleState `json:"ruleStates,omitempty"`

	// permits is the write-ahead record of permits. It is written before a pod is
	// stamped, under the resourceVersion of this resource.
	// +optional
	Permits *PermitRecord `json:"permits,omitempty"`
}

// BlockedPod says why one pod waits.
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

	// message says the same in words and numbers.
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message"`

	// numbers that the reason rests on, for programs.
	// +optional
	Numbers *BlockedNumbers `json:"numbers,omitempty"`

	// blockingPods are pods that stand in the way, sorted; the first 5 of them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=5
	// +kubebuilder:validation:items:MaxLength=253
	BlockingPods []string `json:"blockingPods,omitempty"`

	// since is when the request began to wait.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`

	// nextCheck is when the rule is asked again although nothing has changed.
	// +optional
	NextCheck *metav1.Time `json:"nextCheck,omitempty"`
}

// BlockedNumbers are those of an availablePolicy.
type BlockedNumbers struct {
	// needed slots.
	Needed int32 `json:"needed"`

	// have is how many slots are left.
	Have int32 `json:"have"`

	// limit is how many there are altogether.
	Limit int32 `json:"limit"`
}

// RuleStatus counts what a rule said. A request is one id of one pod that waits in the
// stage of the rule; it counts once, however often the rule is asked about it.
type RuleStatus struct {
	// name of the rule.
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// enforcement that the counts below were made under. They start again from 0 when
	// it, or anything else of the rule, is edited.
	Enforcement Enforcement `json:"enforcement"`

	// generation of the spec since which they are counted.
	Generation int64 `json:"generation"`

	// asked is the number of requests that the rule applied to.
	Asked int64 `json:"asked"`

	// notApplicable is the number of requests in the stage of the rule that it did not apply
	// to: their type is none of conditions, filter does not match the pod, or the pod skips
	// the rule.
	// +optional
	NotApplicable int64 `json:"notApplicable,omitempty"`

	// withheld is the number of those that it held back at least once.
	Withheld int64 `json:"withheld"`

	// wouldWithhold is the number of those that it would have held back, had its
	// enforcement been Enforce.
	WouldWithhold int64 `json:"wouldWithhold"`

	// lastRejections are the newest of the withheld, or would-be withheld, requests,
	// newest first; at most 3.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=3
	LastRejections []Rejection `json:"lastRejections,omitempty"`

	// quarantined says why the rule is not evaluated any more. An edit of the rule, or of
	// its PodTransitionPolicy, lifts it, and so does a new value of the annotation
	// podtransitionrule.kusionstack.io/lift-quarantine of the object.
	// +optional
	Quarantined *Quarantine `json:"quarantined,omitempty"`
}

// RuleState is what a webhook rule has under way.
type RuleState struct {
	// name of the rule.
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// webhookStatus has its calls.
	// +optional
	WebhookStatus *WebhookStatus `json:"webhookStatus,omitempty"`
}

// WebhookStatus has the calls of one webhook rule.
type WebhookStatus struct {
	// taskStates are the calls that count: those that are open, those that approved pods
	// which still wait, and those whose pods wait to be asked about again.
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

// TaskPhase is how far a call is.
// +kubebuilder:validation:Enum=Posting;Polling;Finished;Failed
type TaskPhase string

const (
	// TaskPosting: the POST is written down, and under way or about to be.
	TaskPosting TaskPhase = "Posting"

	// TaskPolling: the service works on it and is polled.
	TaskPolling TaskPhase = "Polling"

	// TaskFinished: the service has said its last word. Pods that it did not approve are
	// rejected.
	TaskFinished TaskPhase = "Finished"

	// TaskFailed: the service could not be asked, or did not end in time.
	TaskFailed TaskPhase = "Failed"
)

// TaskInfo is one call: a POST, and the polls that follow it.
type TaskInfo struct {
	// traceId of the POST. It is sent once under this id.
	// +kubebuilder:validation:MaxLength=64
	TraceID string `json:"traceId"`

	// taskId that the service gave it; empty before its answer, and without poll.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	TaskID string `json:"taskId,omitempty"`

	// queryKey is the parameter of the poll that carries the id; "task-id,trace-id" for
	// both.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	QueryKey string `json:"queryKey,omitempty"`

	Phase TaskPhase `json:"phase"`

	// ruleGeneration of the PodTransitionRule that the call was made under. Approvals
	// count under this one only.
	RuleGeneration int64 `json:"ruleGeneration"`

	// processing are the pods that it is about and that are not approved.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=25
	Processing []TaskPod `json:"processing,omitempty"`

	// approved are the pods that the service approved.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=25
	Approved []TaskPod `json:"approved,omitempty"`

	// beginTime of the call. Its timeout counts from here, over restarts.
	BeginTime metav1.Time `json:"beginTime"`

	// lastTime is when anything of it changed.
	LastTime metav1.Time `json:"lastTime"`

	// nextTime is when the service may be asked again about the pods of a failed call.
	// +optional
	NextTime *metav1.Time `json:"nextTime,omitempty"`

	// attempts is how many calls about these pods have failed in a row.
	// +optional
	Attempts int32 `json:"attempts,omitempty"`

	// answered is true once the service has answered about the pods in processing: it did
	// not approve them, or works on them. From then on failurePolicy Ignore does not let them
	// pass, whatever becomes of later calls.
	// +optional
	Answered bool `json:"answered,omitempty"`

	// reason is the class of a failure.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Reason string `json:"reason,omitempty"`

	// message of the service, or of the failure.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}

// TaskPod is a pod that a call is about.
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

	// generation is the value of the label that marks the waiting: the approval counts
	// for this waiting only.
	// +kubebuilder:validation:MaxLength=63
	Generation string `json:"generation"`
}

// Rejection is one request that a rule held back, or would have.
type Rejection struct {
	// pod is its name.
	// +kubebuilder:validation:MaxLength=253
	Pod string `json:"pod"`

	// id of the lifecycle.
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id"`

	// reason is a stable code.
	// +kubebuilder:validation:MaxLength=63
	Reason string `json:"reason"`

	// message says the same in words and numbers.
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message"`

	// time of the decision.
	Time metav1.Time `json:"time"`
}

// Quarantine keeps a rule from being asked. All requests that it applies to wait.
type Quarantine struct {
	// since is when the rule was put under quarantine.
	Since metav1.Time `json:"since"`

	// source identifies the module that did not answer: a hash. Another module is not
	// under quarantine.
	// +kubebuilder:validation:MaxLength=64
	Source string `json:"source"`

	// message says what happened.
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message"`

	// lift is the value of the annotation podtransitionrule.kusionstack.io/lift-quarantine
	// when the quarantine began. Another value of it, that is not empty, ends the quarantine.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Lift string `json:"lift,omitempty"`
}

// PermitRecord names the pods that may be stamped, and how much a later reader must
// have seen before it may add to them.
type PermitRecord struct {
	// viewResourceVersion is the resourceVersion up to which the pods had been seen
	// when the batch was computed. The next batch is computed from a view that
	// reaches at least this far, so every outcome that the batch took for granted
	// is part of it.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	ViewResourceVersion string `json:"viewResourceVersion,omitempty"`

	// reserved are the pods of the batch, sorted by UID. A pod whose resourceVersion
	// has moved on is no longer reserved: the stamp of this batch can no longer hit
	// it.
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

	// owners are how many pods workloads had when their last permit was given, of kinds
	// that do not tell PodOps how many they want; sorted by UID. A pod that is missing
	// since counts as desired for a while.
	// +optional
	// +listType=map
	// +listMapKey=uid
	// +kubebuilder:validation:MaxItems=200
	Owners []OwnerPods `json:"owners,omitempty"`
}

// OwnerPods is how many pods one workload had.
type OwnerPods struct {
	// uid of the workload.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=128
	UID types.UID `json:"uid"`

	// pods that counted, the one that was permitted among them.
	// +kubebuilder:validation:Minimum=0
	Pods int32 `json:"pods"`
}

// RecentPermit is one that was reserved.
type RecentPermit struct {
	// pod is its name.
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

	// resourceVersion of the pod that the decision was made on. The stamp is sent
	// under the condition that the pod is still at it.
	// +kubebuilder:validation:MaxLength=128
	ResourceVersion string `json:"resourceVersion"`
}
