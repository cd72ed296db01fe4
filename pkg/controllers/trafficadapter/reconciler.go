// Package trafficadapter writes the status of TrafficAdapters: whether admission uses them, how
// many Services they match, and whether their programs run. The status is only a report;
// admission reads the spec.
package trafficadapter

import (
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/resourceconsist/trafficadapter"
)

const (
	// interval is the time between two reads of a Lease, the only request of a reconcile at rest.
	interval = 15 * time.Second

	// readTimeout bounds the read of a Lease.
	readTimeout = 3 * time.Second
)

// Reconciler keeps the status of TrafficAdapters up to date. It is safe for concurrent use.
type Reconciler struct {
	client    client.Client // cached, with the index trafficadapter.ServiceField
	apiReader client.Reader // of Leases
	clock     clock.PassiveClock
}

// New returns a Reconciler. c reads from a cache that has the index trafficadapter.ServiceField.
func New(c client.Client, apiReader client.Reader, clk clock.PassiveClock) *Reconciler {
	return &Reconciler{client: c, apiReader: apiReader, clock: clk}
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr manager.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named("trafficadapter").
		For(&appsv1alpha1.TrafficAdapter{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(r)
	if err != nil {
		return fmt.Errorf("building the controller: %w", err)
	}
	return nil
}

// Reconcile writes the status of one TrafficAdapter if it has changed.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	adapter := &appsv1alpha1.TrafficAdapter{}
	if err := r.client.Get(ctx, req.NamespacedName, adapter); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	found, err := r.gather(ctx, adapter)
	if err != nil {
		return reconcile.Result{}, err
	}
	updated := adapter.DeepCopy()
	updated.Status = buildStatus(adapter, found, r.clock.Now())
	if !equality.Semantic.DeepEqual(adapter.Status, updated.Status) {
		// Deleted meanwhile: nothing to write.
		if err := client.IgnoreNotFound(r.client.Status().Patch(ctx, updated, client.MergeFrom(adapter))); err != nil {
			return reconcile.Result{}, fmt.Errorf("writing the status: %w", err)
		}
	}
	return reconcile.Result{RequeueAfter: interval}, nil
}

func (r *Reconciler) gather(ctx context.Context, adapter *appsv1alpha1.TrafficAdapter) (facts, error) {
	var found facts
	var adapters appsv1alpha1.TrafficAdapterList
	if err := r.client.List(ctx, &adapters, client.UnsafeDisableDeepCopy); err != nil {
		return facts{}, fmt.Errorf("listing TrafficAdapters: %w", err)
	}
	found.inUse = slices.ContainsFunc(trafficadapter.InUse(adapters.Items), func(other appsv1alpha1.TrafficAdapter) bool { return other.UID == adapter.UID })
	var registration trafficadapter.Registration
	registration, found.invalid = trafficadapter.Parse(adapter)
	var services corev1.ServiceList
	all := client.MatchingFields{trafficadapter.ServiceField: trafficadapter.AllServices}
	if err := r.client.List(ctx, &services, all, client.UnsafeDisableDeepCopy); err != nil {
		return facts{}, fmt.Errorf("listing Services: %w", err)
	}
	for i := range services.Items {
		if registration.Matches(&services.Items[i]) {
			found.services++
		}
	}
	err := r.readLease(ctx, adapter.Spec.Lease, &found)
	return found, err
}

// readLease reads the Lease of the program. Only errors that an administrator can remove become
// part of the status.
func (r *Reconciler) readLease(ctx context.Context, reference *appsv1alpha1.LeaseReference, found *facts) error {
	if reference == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	lease := &coordinationv1.Lease{}
	err := r.apiReader.Get(ctx, client.ObjectKey{Namespace: reference.Namespace, Name: reference.Name}, lease)
	switch {
	case err == nil:
		found.lease = lease
	case apierrors.IsForbidden(err):
		found.leaseErr = err
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("reading lease %s/%s: %w", reference.Namespace, reference.Name, err)
	}
	return nil
}
