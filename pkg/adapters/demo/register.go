package demo

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/resourceconsist"
)

// AnnotationKey on a Service, with the value "true", assigns it to this adapter in a
// manager that runs several.
const AnnotationKey = "podops.dev/demo-load-balancer"

// AddToMgr registers the adapter with a manager, for Services with AnnotationKey.
func AddToMgr(mgr manager.Manager, provider Provider, options ...resourceconsist.Option) error {
	if err := resourceconsist.AddToMgr(mgr, chosen{New(mgr.GetClient(), provider)}, options...); err != nil {
		return fmt.Errorf("adding the demo adapter: %w", err)
	}
	return nil
}

// chosen is the adapter for Services with AnnotationKey: without watch options an adapter
// has every Service with the control label.
type chosen struct{ *Adapter }

var _ resourceconsist.ReconcileWatchOptions = chosen{}

func (chosen) NewEmployer() client.Object                 { return &corev1.Service{} }
func (chosen) NewEmployee() client.Object                 { return &corev1.Pod{} }
func (chosen) EmployerEventHandler() handler.EventHandler { return nil }
func (chosen) EmployeeEventHandler() handler.EventHandler { return nil }
func (chosen) EmployeePredicates() predicate.Funcs        { return predicate.Funcs{} }

func (chosen) EmployerPredicates() predicate.Funcs {
	return predicate.NewPredicateFuncs(func(object client.Object) bool {
		return appsv1alpha1.IsControlled(object.GetLabels()) &&
			object.GetAnnotations()[AnnotationKey] == "true"
	})
}
