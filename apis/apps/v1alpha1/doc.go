// Package v1alpha1 is the PodOps API: the PodTransitionRule resource, and every label, annotation,
// finalizer and condition through which PodOps and other controllers communicate about a pod.
// Group, names and values are the same as in KusionStack, so controllers that already use them work
// unchanged.
//
// +kubebuilder:object:generate=true
// +groupName=apps.kusionstack.io
package v1alpha1
