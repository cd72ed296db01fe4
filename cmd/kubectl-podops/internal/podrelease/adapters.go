package podrelease

import (
	"context"
	"fmt"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/resourceconsist"
	"github.com/podops-dev/podops/pkg/resourceconsist/trafficadapter"
)

// findAdapters reads the TrafficAdapters: the TrafficAdapters that are removed with PodOps, and the
// others, whose programs go on. It fails while the program of a removed adapter runs, since that
// would add its finalizers again.
func (r *runner) findAdapters(ctx context.Context) error {
	var adapters appsv1alpha1.TrafficAdapterList
	if err := r.client.List(ctx, &adapters); err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("listing TrafficAdapters: %w", err)
	}
	missing := slices.Clone(r.options.Adapters)
	for i := range adapters.Items {
		adapter := &adapters.Items[i]
		if !slices.Contains(r.options.Adapters, adapter.Name) {
			r.report.Adapters = append(r.report.Adapters, adapter.Name)
			continue
		}
		missing = without(missing, []string{adapter.Name})
		if err := r.checkStopped(ctx, adapter); err != nil {
			return err
		}
		// An invalid entry matches no Service.
		registration, _ := trafficadapter.Parse(adapter)
		r.removed = append(r.removed, registration)
	}
	if len(missing) > 0 {
		return fmt.Errorf("no TrafficAdapter has the name %q", missing[0])
	}
	return nil
}

func (r *runner) checkStopped(ctx context.Context, adapter *appsv1alpha1.TrafficAdapter) error {
	if adapter.Spec.Lease == nil {
		return nil
	}
	var lease coordinationv1.Lease
	err := r.client.Get(ctx, client.ObjectKey{Namespace: adapter.Spec.Lease.Namespace, Name: adapter.Spec.Lease.Name}, &lease)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("reading the lease of TrafficAdapter %s: %w", adapter.Name, err)
	case trafficadapter.IsHeld(&lease, r.clock.Now()):
		return fmt.Errorf("the program of TrafficAdapter %s runs, as lease %s/%s shows: stop it first", adapter.Name, lease.Namespace, lease.Name)
	default:
		return nil
	}
}

// isRemoved reports whether the controller of a Service is removed: by its annotation, or by a
// TrafficAdapter when its program has never reconciled the Service.
func (r *runner) isRemoved(service *corev1.Service) bool {
	owner := service.Annotations[resourceconsist.ControllerAnnotationKey]
	return slices.Contains(r.options.Controllers, owner) || slices.ContainsFunc(r.removed, func(registration trafficadapter.Registration) bool {
		return registration.Owns(owner) || registration.Matches(service)
	})
}
