package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TrafficAdapter registers an adapter of package resourceconsist that runs in a program of its
// own. A new pod that one of its Services selects expects the finalizer of that Service from its
// creation, also while the program does not run: the pod is not available before the adapter has
// confirmed its traffic. A user who may write a TrafficAdapter can keep the new pods of every
// Service under PodOps out of service.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=ta,categories=podops
// +kubebuilder:printcolumn:name="Controller",type=string,JSONPath=".spec.controller"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=".status.conditions[?(@.type=='Ready')].status"
// +kubebuilder:printcolumn:name="Running",type=string,JSONPath=".status.conditions[?(@.type=='Running')].status"
// +kubebuilder:printcolumn:name="Services",type=integer,JSONPath=".status.serviceCount",description="Services that it matches"
// +kubebuilder:printcolumn:name="Why",type=string,priority=1,JSONPath=".status.conditions[?(@.type=='Running')].message"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
type TrafficAdapter struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the registration.
	// +required
	Spec TrafficAdapterSpec `json:"spec"`

	// status is whether the registration is in use, and whether the program runs.
	// +optional
	Status TrafficAdapterStatus `json:"status,omitzero"`
}

// TrafficAdapterList is a list of TrafficAdapters.
//
// +kubebuilder:object:root=true
type TrafficAdapterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TrafficAdapter `json:"items"`
}

// TrafficAdapterSpec states which Services an adapter has, and how to find out whether it runs.
type TrafficAdapterSpec struct {
	// controller is the name of the adapter, as its GetControllerName returns it. It cannot be
	// changed: the adapter writes it on Services.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="controller cannot be changed: the adapter writes it on Services; create another TrafficAdapter"
	Controller string `json:"controller"`

	// services matches the Services of the adapter, as its EmployerPredicates do: Services with the
	// label kusionstack.io/control: "true" that fit one of the entries. A Service that the
	// annotation podops.dev/resource-consist-controller assigns to another controller is not
	// matched.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Services []ServiceMatch `json:"services"`

	// lease is a Lease that the program renews while it runs, such as the Lease of its leader
	// election. The manager needs the right to get it. Unset: the condition Running is Unknown.
	// +optional
	Lease *LeaseReference `json:"lease,omitempty"`
}

// ServiceMatch matches Services that have all that it sets.
//
// +kubebuilder:validation:XValidation:rule="has(self.labelSelector) || has(self.annotations) || has(self.type)",message="set labelSelector, annotations or type; labelSelector: {} matches every Service under PodOps"
// +kubebuilder:validation:XValidation:rule="!has(self.loadBalancerClasses) || (has(self.type) && self.type == 'LoadBalancer')",message="loadBalancerClasses needs type: LoadBalancer"
type ServiceMatch struct {
	// labelSelector matches the labels of Services. Empty: every Service under PodOps.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && e.values.size() > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || e.values.size() == 0))",message="operator is In or NotIn with values, or Exists or DoesNotExist without"
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`

	// annotations must all be on the Service.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Annotations []AnnotationMatch `json:"annotations,omitempty"`

	// type is the type of the Service.
	// +optional
	// +kubebuilder:validation:Enum=ClusterIP;NodePort;LoadBalancer
	Type corev1.ServiceType `json:"type,omitempty"`

	// loadBalancerClasses lists spec.loadBalancerClass of the Service; the empty string is a
	// Service without a class. Unset: any.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=317
	LoadBalancerClasses []string `json:"loadBalancerClasses,omitempty"`
}

// MaxAnnotationMatchBytes is the longest value of an AnnotationMatch.
const MaxAnnotationMatchBytes = 253

// AnnotationMatch matches an annotation.
type AnnotationMatch struct {
	// key of the annotation.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Key string `json:"key"`

	// value of the annotation. Unset: any value except the empty string.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Value *string `json:"value,omitempty"`
}

// LeaseReference names a Lease.
type LeaseReference struct {
	// namespace of the Lease.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace"`

	// name of the Lease.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name"`
}

// TrafficAdapterStatus reports on a registration.
type TrafficAdapterStatus struct {
	// observedGeneration is the generation of the spec that the status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Ready and Running.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// serviceCount is the number of Services that the adapter has, in all namespaces.
	// +optional
	ServiceCount int32 `json:"serviceCount"`
}
