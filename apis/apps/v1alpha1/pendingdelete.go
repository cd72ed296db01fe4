package v1alpha1

import "k8s.io/apimachinery/pkg/types"

// PendingDelete is the value of PendingDeleteAnnotationKey.
// +kubebuilder:object:generate=false
type PendingDelete struct {
	// UID is the UID of the pod.
	UID types.UID `json:"uid"`

	// Since is the value of the lifecycle's label operating: when the request came, as
	// Unix time in nanoseconds. With any other value of the label the record is void. It is empty
	// for a request that the leader is to begin.
	Since string `json:"since"`

	// Seen is when the request was last repeated, as Unix time in nanoseconds; 0 when it
	// was not. The leader remembers later repetitions for a pod that is prepared.
	Seen int64 `json:"seen,omitempty"`

	// Method is the way by which the request came: Delete, DeleteCollection, Eviction or Label.
	Method string `json:"method"`

	// Interval is the time between the first two requests of the client in nanoseconds; 0 when
	// it has not repeated its request.
	Interval int64 `json:"interval,omitempty"`

	// Actor is the class of the client, which decides when the request lapses: Owner, Controller,
	// Evictor, Client or Label.
	Actor string `json:"actor"`

	// User is the name of the client, cut to 256 bytes.
	User string `json:"user,omitempty"`

	// Groups are the groups of the client, sorted; the first of them if GroupsTruncated is true.
	Groups []string `json:"groups,omitempty"`

	// GroupsTruncated is true if the client has more groups than a record holds.
	GroupsTruncated bool `json:"groupsTruncated,omitempty"`

	// OwnerGeneration is the generation of the pod's owner at the time of the request;
	// 0 if it is not known.
	OwnerGeneration int64 `json:"ownerGeneration,omitempty"`
}

// LabelRequester is the user who requested an operation by a label, in the value of RequestersAnnotationKey.
type LabelRequester struct {
	// Value is the value of the label. With any other value the entry is void.
	Value string `json:"value"`

	// Type is the operation type that belongs to the label operating; empty for the label to-delete. With any other type
	// the entry is void.
	Type string `json:"type,omitempty"`

	// Actor is the class of the user: Controller, Manager or Client.
	Actor string `json:"actor"`

	// User is the name of the user, cut to 256 bytes.
	User string `json:"user"`

	// Groups are the groups of the user, sorted; the first of them if GroupsTruncated is true.
	Groups []string `json:"groups,omitempty"`

	// GroupsTruncated is true if the user has more groups than an entry holds.
	GroupsTruncated bool `json:"groupsTruncated,omitempty"`
}
