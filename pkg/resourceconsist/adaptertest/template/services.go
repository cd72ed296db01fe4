package main

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// AnnotationKey on a Service under PodOps, with the value "true", gives it to this adapter. Two
// adapters must not have the same Service. registration.yaml states the same to the manager.
const AnnotationKey = "adapter-template.example.com/load-balancer"

// NewEmployer implements resourceconsist.ReconcileWatchOptions.
func (a *Template) NewEmployer() client.Object { return &corev1.Service{} }

// NewEmployee implements resourceconsist.ReconcileWatchOptions.
func (a *Template) NewEmployee() client.Object { return &corev1.Pod{} }

// EmployerEventHandler returns nil, the default.
func (a *Template) EmployerEventHandler() handler.EventHandler { return nil }

// EmployeeEventHandler returns nil, the default.
func (a *Template) EmployeeEventHandler() handler.EventHandler { return nil }

// EmployeePredicates passes every event.
func (a *Template) EmployeePredicates() predicate.Funcs { return predicate.Funcs{} }

// EmployerPredicates passes the Services of this adapter.
func (a *Template) EmployerPredicates() predicate.Funcs {
	return predicate.NewPredicateFuncs(func(object client.Object) bool {
		return appsv1alpha1.IsControlled(object.GetLabels()) && object.GetAnnotations()[AnnotationKey] == "true"
	})
}
