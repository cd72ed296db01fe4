package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PodOperationApproval is the decision of one user about one revision of a workload: the approval
// rules in the namespace count it. The user who creates it is its approver. It cannot be changed; of several
// decisions by a user about a revision the newest counts. metadata.creationTimestamp is the time of the decision.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=poa,categories=podops
// +kubebuilder:printcolumn:name="Workload",type=string,JSONPath=".spec.workload.name"
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=".spec.workload.kind",priority=1
// +kubebuilder:printcolumn:name="Decision",type=string,JSONPath=".spec.decision"
// +kubebuilder:printcolumn:name="Approver",type=string,JSONPath=".spec.approver"
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=".spec.expiresAt"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=".spec.reason"
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=".spec.revision",priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
type PodOperationApproval struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the decision.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a decision cannot be changed: create a new decision, the newest of a user counts"
	Spec PodOperationApprovalSpec `json:"spec"`
}

// PodOperationApprovalList is a list of PodOperationApprovals.
//
// +kubebuilder:object:root=true
type PodOperationApprovalList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PodOperationApproval `json:"items"`
}

// ApprovalDecision is what a user has decided about a revision.
// +kubebuilder:validation:Enum=Approve;Deny
type ApprovalDecision string

const (
	// ApprovalApprove counts for the minApprovals of rules.
	ApprovalApprove ApprovalDecision = "Approve"

	// ApprovalDeny withholds the rollout of the revision, however many users approve it.
	ApprovalDeny ApprovalDecision = "Deny"
)

// PodOperationApprovalSpec is a decision about a revision of a workload.
type PodOperationApprovalSpec struct {
	// workload has the revision.
	// +required
	Workload ApprovalWorkload `json:"workload"`

	// revision is the SHA-256 hash of the pod template, in hexadecimal, as kubectl podops approvals prints it. The
	// decision counts for no other template.
	// +required
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	// +kubebuilder:validation:MaxLength=64
	Revision string `json:"revision"`

	// decision is Approve or Deny.
	// +required
	Decision ApprovalDecision `json:"decision"`

	// approver is the name of the user who creates the object. Admission sets it, and denies another name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Approver string `json:"approver,omitempty"`

	// reason is human-readable.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`

	// expiresAt is the time from which on the decision does not count. Pods that were permitted before go on. Unset: it
	// does not expire.
	// +optional
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`
}

// ApprovalWorkload names a workload in the namespace of the PodOperationApproval.
type ApprovalWorkload struct {
	// kind is Deployment, StatefulSet or DaemonSet, of the group apps.
	// +required
	// +kubebuilder:validation:Enum=Deployment;StatefulSet;DaemonSet
	Kind string `json:"kind"`

	// name of the workload.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}
