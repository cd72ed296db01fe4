package haproxy

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/resourceconsist"
)

// Resync is the interval at which each backend is read without an event in the cluster. An
// HAProxy that was restarted has no servers for up to that long.
const Resync = 5 * time.Second

var _ resourceconsist.ReconcileWatchOptions = &Adapter{}

// AddToMgr registers the adapter with a manager. Further options are passed to the framework and
// override the options of the adapter.
func AddToMgr(mgr manager.Manager, options Options, more ...resourceconsist.Option) error {
	adapter := New(mgr.GetClient(), options, clock.RealClock{})
	all := append([]resourceconsist.Option{resourceconsist.WithResync(Resync)}, more...)
	if err := resourceconsist.AddToMgr(mgr, adapter, all...); err != nil {
		return fmt.Errorf("adding the adapter for HAProxy: %w", err)
	}
	return nil
}

// NewEmployer implements resourceconsist.ReconcileWatchOptions.
func (a *Adapter) NewEmployer() client.Object { return &corev1.Service{} }

// NewEmployee implements resourceconsist.ReconcileWatchOptions.
func (a *Adapter) NewEmployee() client.Object { return &corev1.Pod{} }

// EmployerEventHandler returns nil for the default of the framework.
func (a *Adapter) EmployerEventHandler() handler.EventHandler { return nil }

// EmployeeEventHandler returns nil for the default of the framework.
func (a *Adapter) EmployeeEventHandler() handler.EventHandler { return nil }

// EmployerPredicates passes controlled Services that name a Runtime API or a backend. A
// Service with only one of the two passes, too, so that the error names the missing
// annotation.
func (a *Adapter) EmployerPredicates() predicate.Funcs {
	return predicate.NewPredicateFuncs(func(object client.Object) bool {
		annotations := object.GetAnnotations()
		_, runtime := annotations[RuntimeAnnotationKey]
		_, backend := annotations[BackendAnnotationKey]
		return appsv1alpha1.IsControlled(object.GetLabels()) && (runtime || backend)
	})
}

// EmployeePredicates passes every event.
func (a *Adapter) EmployeePredicates() predicate.Funcs { return predicate.Funcs{} }
