package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Surge is the value of SurgeAnnotationKey.
// +kubebuilder:object:generate=false
type Surge struct {
	// Began is when the Deployment became the controller of the pod, in place of its ReplicaSet.
	Began metav1.Time `json:"began"`

	// Ended is when the pod was left to its ReplicaSet again; nil before.
	Ended *metav1.Time `json:"ended,omitempty"`

	// TimedOut is true if the other pod did not become available in time.
	TimedOut bool `json:"timedOut,omitempty"`

	// Cost is true if the deletion cost of the pod is that of PodOps.
	Cost bool `json:"cost,omitempty"`
}
