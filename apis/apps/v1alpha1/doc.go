// Package v1alpha1 is the PodOps API: the PodTransitionRule resource, and every
// label, annotation, finalizer and condition through which PodOps and the
// controllers around it speak about a pod. Group, names and values are those of
// KusionStack, so controllers that already speak them work unchanged.
//
// +kubebuilder:object:generate=true
// +groupName=apps.kusionstack.io
package v1alpha1
