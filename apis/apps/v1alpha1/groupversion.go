package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of all resources in this package.
const GroupName = "apps.kusionstack.io"

// GroupVersion returns the group and version of all resources in this package.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}
}

// AddToScheme registers the kinds of this package with a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion(),
		&PodTransitionRule{}, &PodTransitionRuleList{},
		&PodTransitionPolicy{}, &PodTransitionPolicyList{},
		&TrafficAdapter{}, &TrafficAdapterList{},
		&PodOperation{}, &PodOperationList{},
		&PodOperationApproval{}, &PodOperationApprovalList{})
	metav1.AddToGroupVersion(scheme, GroupVersion())
	return nil
}
