package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// PodOperation operates once on existing pods of its namespace, each through its
// PodOpsLifecycle: it restarts, updates, resizes, deletes or evicts them. It begins the
// lifecycles of all targets; the PodTransitionRules and PodDisruptionBudgets that select the
// pods decide how many are operated on at a time. Pods that no rule selects are operated on at
// once, all of them. Only pods with the label kusionstack.io/control are targets.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=po-op,categories=podops
// +kubebuilder:printcolumn:name="Action",type=string,JSONPath=".spec.action.type"
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=".status.conditions[?(@.type=='Ready')].reason",description="Why the operation is Ready, or is not"
// +kubebuilder:printcolumn:name="Total",type=integer,JSONPath=".status.total",description="Target pods"
// +kubebuilder:printcolumn:name="Succeeded",type=integer,JSONPath=".status.succeeded",description="Pods that were operated on and serve again, or are gone as requested"
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=".status.failed",description="Pods that the action failed for"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Waiting",type=integer,JSONPath=".status.waiting",priority=1,description="Pods whose lifecycle has not begun"
// +kubebuilder:printcolumn:name="Preparing",type=integer,JSONPath=".status.preparing",priority=1,description="Pods that wait for rules, or for their traffic to go off"
// +kubebuilder:printcolumn:name="Operating",type=integer,JSONPath=".status.operating",priority=1,description="Pods that the action is carried out on"
// +kubebuilder:printcolumn:name="Completing",type=integer,JSONPath=".status.completing",priority=1,description="Pods that return to service, or terminate"
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=".status.conditions[?(@.type=='Ready')].message",priority=1
type PodOperation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the operation. Its target, action and order are immutable.
	// +required
	Spec PodOperationSpec `json:"spec"`

	// status is the progress of the operation.
	// +optional
	Status PodOperationStatus `json:"status,omitzero"`
}

// PodOperationList is a list of PodOperations.
//
// +kubebuilder:object:root=true
type PodOperationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PodOperation `json:"items"`
}

// PodOperationSpec names pods and an action on them.
//
// +kubebuilder:validation:XValidation:rule="has(self.order) == has(oldSelf.order)",message="order is immutable"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.cancel) || !oldSelf.cancel || has(self.cancel) && self.cancel",message="a cancelled operation cannot be resumed: create another PodOperation"
type PodOperationSpec struct {
	// target names the pods. A pod that is created later than the PodOperation is no target, so
	// that replacements of deleted pods stay.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="target is immutable: create another PodOperation"
	Target PodOperationTarget `json:"target"`

	// action is carried out on each pod.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="action is immutable: create another PodOperation"
	Action PodOperationAction `json:"action"`

	// order is the order in which the lifecycles of the targets begin, and in which rules permit
	// them. Name compares numbers in names by value (web-2 before web-10), ReverseName is its
	// reverse, OldestFirst and NewestFirst compare creation times. Unset: the order of
	// target.names, and Name for other targets.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="order is immutable"
	Order PodOperationOrder `json:"order,omitempty"`

	// partition is the number of targets, the last in the order, that are left as they are: a
	// count, or a percentage of the targets, rounded up. The operation does not end before
	// partition is 0. Lower it to operate on more pods. Unset: 0.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 : self.matches('^([0-9]|[1-9][0-9]|100)%$')",message="partition must be a count from 0, or a percentage from 0% to 100%"
	Partition *intstr.IntOrString `json:"partition,omitempty"`

	// suspend begins no further pod, and cancels the lifecycles of pods that no rule has permitted
	// yet. Pods that are permitted are operated on. Unset suspend to resume.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// cancel ends the operation: lifecycles of pods that have not been operated on are undone, and
	// the others finish. It cannot be unset. The deletion of the PodOperation does the same.
	// +optional
	Cancel bool `json:"cancel,omitempty"`

	// deadlineSeconds is the time that the operation may take from status.startTime on,
	// suspended or not. It is cancelled after that time. Unset: no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=31536000
	DeadlineSeconds *int32 `json:"deadlineSeconds,omitempty"`

	// ttlSecondsAfterFinished is the time for which the PodOperation is kept after its end. It
	// is deleted after that time. Unset: it is kept.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=31536000
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
}

// PodOperationTarget names pods in the namespace of the PodOperation, by exactly one of its fields.
//
// +kubebuilder:validation:XValidation:rule="[has(self.selector), has(self.names), has(self.owner)].exists_one(set, set)",message="set exactly one of selector, names and owner"
type PodOperationTarget struct {
	// selector selects pods by their labels. It must have at least one requirement: an empty
	// selector is rejected, because it would select every pod of the namespace by accident.
	// +optional
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && self.matchLabels.size() > 0) || (has(self.matchExpressions) && self.matchExpressions.size() > 0)",message="selector must have at least one of matchLabels or matchExpressions: an empty selector would catch every pod of the namespace"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, (e.operator in ['In', 'NotIn']) ? has(e.values) && e.values.size() > 0 : (e.operator in ['Exists', 'DoesNotExist']) && (!has(e.values) || e.values.size() == 0))",message="an operator is In or NotIn with values, or Exists or DoesNotExist without"
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// names are the names of pods.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Names []string `json:"names,omitempty"`

	// owner selects the pods that a workload controls.
	// +optional
	Owner *PodOperationOwner `json:"owner,omitempty"`
}

// PodOperationOwner names a workload.
type PodOperationOwner struct {
	// kind is the kind of the controller in the ownerReferences of pods, such as StatefulSet, or
	// Deployment for the pods of its ReplicaSets.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// name of the workload.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// PodOperationActionType is a kind of action.
// +kubebuilder:validation:Enum=Restart;UpdateImages;Resize;Delete;Evict
type PodOperationActionType string

const (
	// ActionRestart restarts containers in place. The operation type of its lifecycles is restart.
	ActionRestart PodOperationActionType = "Restart"

	// ActionUpdateImages changes images of containers in place. The operation type is update.
	ActionUpdateImages PodOperationActionType = "UpdateImages"

	// ActionResize changes the resources of containers in place. The operation type is resize.
	ActionResize PodOperationActionType = "Resize"

	// ActionDelete deletes the pod. The operation type is delete.
	ActionDelete PodOperationActionType = "Delete"

	// ActionEvict evicts the pod: a PodDisruptionBudget applies. The operation type is delete.
	ActionEvict PodOperationActionType = "Evict"
)

// PodOperationAction is a type with the field of that type.
//
// +kubebuilder:validation:XValidation:rule="!has(self.restart) || self.type == 'Restart'",message="restart is for the type Restart"
// +kubebuilder:validation:XValidation:rule="has(self.updateImages) == (self.type == 'UpdateImages')",message="updateImages is required for the type UpdateImages, and for no other"
// +kubebuilder:validation:XValidation:rule="has(self.resize) == (self.type == 'Resize')",message="resize is required for the type Resize, and for no other"
// +kubebuilder:validation:XValidation:rule="!has(self.gracePeriodSeconds) || self.type in ['Delete', 'Evict']",message="gracePeriodSeconds is for the types Delete and Evict"
type PodOperationAction struct {
	// type is the kind of action.
	// +required
	// +kubebuilder:validation:MaxLength=16
	Type PodOperationActionType `json:"type"`

	// restart names the containers to restart. Unset: all containers.
	// +optional
	Restart *RestartAction `json:"restart,omitempty"`

	// updateImages are new images.
	// +optional
	UpdateImages *UpdateImagesAction `json:"updateImages,omitempty"`

	// resize are new resources.
	// +optional
	Resize *ResizeAction `json:"resize,omitempty"`

	// gracePeriodSeconds is the grace period of a delete or an eviction. Unset: the grace period of
	// the pod.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	GracePeriodSeconds *int64 `json:"gracePeriodSeconds,omitempty"`
}

// RestartAction restarts containers in place. No API of Kubernetes restarts a container on request.
// A kubelet restarts a container when the reference of its image changes, so the action writes another
// reference of the very digest that runs: the tag with the digest, or the digest alone. It fails for
// a pod whose kubelet reports no digest.
type RestartAction struct {
	// containers are the names of the containers to restart.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Containers []string `json:"containers"`
}

// UpdateImagesAction changes images. The template of the workload stays as it is.
type UpdateImagesAction struct {
	// containers are the containers to update, with their images.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Containers []ContainerImage `json:"containers"`
}

// ContainerImage is an image for a container.
type ContainerImage struct {
	// name of the container.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// image is the reference of the image, of the same repository as the image of the container: with
	// another tag or digest.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="!self.matches('\\\\s')",message="image must not contain white space"
	Image string `json:"image"`
}

// ResizeAction changes resources by the subresource resize of pods (Kubernetes 1.33 and later).
type ResizeAction struct {
	// containers are the containers to resize, with their resources.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Containers []ContainerResources `json:"containers"`
}

// ContainerResources are resources for a container. Unset fields stay as they are.
//
// +kubebuilder:validation:XValidation:rule="has(self.requests) || has(self.limits)",message="set requests or limits"
type ContainerResources struct {
	// name of the container.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// requests are new requests.
	// +optional
	Requests *ResizableResources `json:"requests,omitempty"`

	// limits are new limits.
	// +optional
	Limits *ResizableResources `json:"limits,omitempty"`
}

// ResizableResources are the resources that a pod can change.
//
// +kubebuilder:validation:XValidation:rule="has(self.cpu) || has(self.memory)",message="set cpu or memory"
type ResizableResources struct {
	// cpu is an amount of processor time.
	// +optional
	CPU *resource.Quantity `json:"cpu,omitempty"`

	// memory is an amount of memory.
	// +optional
	Memory *resource.Quantity `json:"memory,omitempty"`
}

// PodOperationOrder is an order of pods.
// +kubebuilder:validation:Enum=Name;ReverseName;OldestFirst;NewestFirst
type PodOperationOrder string

const (
	// OrderName is by name, with numbers by value.
	OrderName PodOperationOrder = "Name"

	// OrderReverseName is the reverse of OrderName, the order of a StatefulSet.
	OrderReverseName PodOperationOrder = "ReverseName"

	// OrderOldestFirst is by creation time.
	OrderOldestFirst PodOperationOrder = "OldestFirst"

	// OrderNewestFirst is by creation time, the newest first.
	OrderNewestFirst PodOperationOrder = "NewestFirst"
)

// MaxStatusPods is the maximum number of pods in the status of a PodOperation.
const MaxStatusPods = 64

// MaxActivePodOperations is the number of PodOperations of a namespace that are in progress at once.
// Others start when they end.
const MaxActivePodOperations = 16

// MaxPodMessageBytes bounds the message of a pod in the status of a PodOperation.
const MaxPodMessageBytes = 256

// PodOperationStatus is the progress of a PodOperation. The counts from waiting to gone add up to
// total.
type PodOperationStatus struct {
	// observedGeneration is the generation of the spec that the status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// startTime is when the operation started. deadlineSeconds counts from here.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// completionTime is the time at which the operation ended, with any result. No pod is operated
	// on later.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`

	// total is the number of targets at the start.
	// +optional
	Total int32 `json:"total"`

	// waiting is the number of targets whose lifecycle has not begun.
	// +optional
	Waiting int32 `json:"waiting"`

	// preparing is the number of targets that wait for rules, or for their traffic to go off.
	// +optional
	Preparing int32 `json:"preparing"`

	// operating is the number of targets that may be operated on, or are.
	// +optional
	Operating int32 `json:"operating"`

	// completing is the number of targets that were operated on and do not serve yet, or terminate.
	// +optional
	Completing int32 `json:"completing"`

	// succeeded is the number of targets that were operated on and serve again, or were deleted.
	// +optional
	Succeeded int32 `json:"succeeded"`

	// failed is the number of targets that the action failed for.
	// +optional
	Failed int32 `json:"failed"`

	// gone is the number of targets that do not exist any more although the action keeps pods, and of
	// names without a pod at the start.
	// +optional
	Gone int32 `json:"gone"`

	// pods are the first targets that have failed, are in operation or wait, in this order.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Pods []PodOperationPod `json:"pods,omitempty"`

	// conditions are Ready, Reconciling and Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PodOperationPod is the progress of one target.
type PodOperationPod struct {
	// name of the pod.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// state of the pod in the operation.
	State PodOperationState `json:"state"`

	// message explains a failure, or the condition that the pod waits for.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
}

// PodOperationState is the state of a target.
// +kubebuilder:validation:Enum=Waiting;Preparing;Operating;Completing;Succeeded;Failed
type PodOperationState string

// States of a target, in their usual order.
const (
	// PodWaiting means that the lifecycle has not begun.
	PodWaiting PodOperationState = "Waiting"

	// PodPreparing means that the lifecycle has begun, and operate is not granted.
	PodPreparing PodOperationState = "Preparing"

	// PodOperating means that operate is granted.
	PodOperating PodOperationState = "Operating"

	// PodCompleting means that the action is done, and the pod does not serve yet or terminates.
	PodCompleting PodOperationState = "Completing"

	// PodSucceeded means that the pod was operated on and serves again.
	PodSucceeded PodOperationState = "Succeeded"

	// PodFailed means that the action failed for the pod.
	PodFailed PodOperationState = "Failed"
)

// Reasons of the conditions of a PodOperation. They never change.
const (
	// ReasonInProgress means that pods are operated on.
	ReasonInProgress = "InProgress"

	// ReasonQueued means that MaxActivePodOperations of the namespace are in progress.
	ReasonQueued = "Queued"

	// ReasonSuspended means that spec.suspend is set.
	ReasonSuspended = "Suspended"

	// ReasonPartitioned means that all pods outside of spec.partition have been operated on.
	ReasonPartitioned = "Partitioned"

	// ReasonSucceeded means that every target has been operated on.
	ReasonSucceeded = "Succeeded"

	// ReasonPodsFailed means that the action has failed for a pod, and no further pod is operated on.
	ReasonPodsFailed = "PodsFailed"

	// ReasonNoTargets means that the target names no pod that is under PodOps.
	ReasonNoTargets = "NoTargets"

	// ReasonCancelled means that spec.cancel is set, or that the PodOperation is deleted.
	ReasonCancelled = "Cancelled"

	// ReasonDeadlineExceeded means that deadlineSeconds have passed.
	ReasonDeadlineExceeded = "DeadlineExceeded"

	// ReasonInvalidTarget means that the selector cannot be parsed.
	ReasonInvalidTarget = "InvalidTarget"
)
