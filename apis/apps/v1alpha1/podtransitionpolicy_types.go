package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PodTransitionPolicy is a Rego module that rules of many PodTransitionRules share,
// each with parameters of its own. A rule refers to it by rego.policyRef. A user who
// may write a PodTransitionPolicy decides for pods of every namespace in which it is
// used; a rule that uses it only reads its own namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=ptp,categories=podops
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=".status.conditions[?(@.type=='Ready')].status"
// +kubebuilder:printcolumn:name="Users",type=integer,JSONPath=".status.userCount",description="Rules that refer to it"
// +kubebuilder:printcolumn:name="Description",type=string,JSONPath=".spec.description"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
type PodTransitionPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the policy.
	// +required
	Spec PodTransitionPolicySpec `json:"spec"`

	// status is the result of compiling the policy, and the number of its users.
	// +optional
	Status PodTransitionPolicyStatus `json:"status,omitzero"`
}

// PodTransitionPolicyList is a list of PodTransitionPolicies.
//
// +kubebuilder:object:root=true
type PodTransitionPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PodTransitionPolicy `json:"items"`
}

// PodTransitionPolicySpec is a module and the schema of its parameters, or a library or data for other modules.
//
// +kubebuilder:validation:XValidation:rule="has(self.module) || has(self.data)",message="module or data is required",fieldPath=".module",reason="FieldValueRequired"
type PodTransitionPolicySpec struct {
	// description is the purpose of the policy in a sentence.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Description string `json:"description,omitempty"`

	// module is Rego source. Package rule, or a package below it, with either allow or deny, is for rules. Package
	// lib.<name> is a library for other policies, with the name of this one.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	Module string `json:"module,omitempty"`

	// imports are the names of PodTransitionPolicies that the module may refer to: to their libraries as
	// data.lib.<name>, and to their data as data.config.<name>. What they import must not lead back to this policy.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Imports []string `json:"imports,omitempty"`

	// data is an object with constants, which this policy and its importers read as data.config.<name>. Its fields are
	// named as in Rego: letters, digits and _.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +kubebuilder:validation:MaxProperties=128
	Data *apiextensionsv1.JSON `json:"data,omitempty"`

	// parameters describes the parameters that rules set in rego.parameters. Unset: rules set no
	// parameters.
	// +optional
	Parameters *PolicyParameters `json:"parameters,omitempty"`
}

// PolicyParameters is the schema of the parameters of a policy.
type PolicyParameters struct {
	// openAPIV3Schema is a structural schema of type object. Parameters are validated
	// against it, completed by its defaults, and the module is type-checked with it.
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +kubebuilder:validation:MaxProperties=64
	OpenAPIV3Schema *apiextensionsv1.JSON `json:"openAPIV3Schema"`
}

// MaxStatusProblems is the maximum number of entries in status.problems of a PodTransitionPolicy.
const MaxStatusProblems = 10

// PodTransitionPolicyStatus reports whether the module compiles, and how many rules use it.
type PodTransitionPolicyStatus struct {
	// observedGeneration is the generation of the spec that the status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Ready and Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// problems are the first errors of the compiler, in the order of the source.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Problems []PolicyProblem `json:"problems,omitempty"`

	// userCount is the number of rules that refer to the policy. The status does not name
	// them, because readers of a policy may not be allowed to read all namespaces.
	// +optional
	UserCount int32 `json:"userCount"`

	// userNamespaceCount is the number of namespaces of these rules.
	// +optional
	UserNamespaceCount int32 `json:"userNamespaceCount"`
}

// PolicyProblem is one error of the compiler.
type PolicyProblem struct {
	// row in the module, from 1; 0 when the problem has no location.
	Row int32 `json:"row"`

	// column in the row, from 1.
	Column int32 `json:"column"`

	// code is OPA's code of the kind of error ("rego_type_error").
	// +kubebuilder:validation:MaxLength=63
	Code string `json:"code"`

	// message describes the error.
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message"`
}
