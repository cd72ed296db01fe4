package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Unstuck is the value of UnstuckAnnotationKey.
// +kubebuilder:object:generate=false
type Unstuck struct {
	// By is the name of the user.
	By string `json:"by"`

	// Reason is the reason that the user gave.
	Reason string `json:"reason"`

	// At is the time of the change.
	At metav1.Time `json:"at"`

	// Changes describe it.
	Changes []string `json:"changes"`
}
