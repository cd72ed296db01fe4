package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	kvstorev1 "github.com/podops-dev/podops/examples/kvstore/apis/v1"
	"github.com/podops-dev/podops/examples/kvstore/pkg/operator/plan"
	"github.com/podops-dev/podops/pkg/podopslifecycle"
)

// retryAfter is the delay after a write that met a newer version: its event usually comes before.
const retryAfter = 500 * time.Millisecond

// Delays after a step that failed.
const (
	firstFailureDelay = 100 * time.Millisecond
	maxFailureDelay   = time.Minute
)

// Store observes and changes the stores of clusters. Its methods return at once; a change of an
// observation, and the end of a call that was requested, cause another round of the cluster.
type Store interface {
	// Observe returns the last observation of the store whose members have these addresses by name. Before the
	// first it returns the zero value, and the first leads to another round.
	Observe(cluster types.NamespacedName, addresses map[string]string) plan.Observation

	// Refresh requests a new observation.
	Refresh(cluster types.NamespacedName)

	// MoveLeader moves leadership.
	MoveLeader(cluster types.NamespacedName, move plan.Move)

	// RemoveMember removes a pod from the members of the store.
	RemoveMember(cluster types.NamespacedName, pod string)

	// Forget drops everything that is known of a store.
	Forget(cluster types.NamespacedName)
}

// Reconciler keeps KVStoreClusters as their specs request. Everything that it needs after a restart is in the API server.
type Reconciler struct {
	client   client.Client
	store    Store
	settings plan.Settings
	recorder events.EventRecorder
	clock    clock.PassiveClock
	failures failures
	release  Release
}

// New returns a Reconciler. c reads its own writes.
func New(c client.Client, store Store, settings plan.Settings, recorder events.EventRecorder, clk clock.PassiveClock) *Reconciler {
	return &Reconciler{
		client: c, store: store, settings: settings, recorder: recorder, clock: clk,
		failures: failures{byCluster: map[types.NamespacedName]string{}},
		release:  func(context.Context, *kvstorev1.KVStoreCluster) error { return nil },
	}
}

// Releasing sets how the external resources of a cluster are released at its deletion. It returns r, and must be called before
// SetupWithManager.
func (r *Reconciler) Releasing(release Release) *Reconciler {
	r.release = release
	return r
}

// Reconcile takes the next step of one cluster.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	cluster := &kvstorev1.KVStoreCluster{}
	if err := r.client.Get(ctx, request.NamespacedName, cluster); apierrors.IsNotFound(err) {
		r.store.Forget(request.NamespacedName)
		r.failures.forget(request.NamespacedName)
		return reconcile.Result{}, nil
	} else if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading the cluster: %w", err)
	}
	snapshot, err := r.snapshot(ctx, cluster)
	if err != nil {
		return reconcile.Result{}, err
	}
	if snapshot.Store.At.IsZero() {
		// This process has just started. A status that reports an unknown leader would be replaced by the
		// next: an operator that always ends after it would never come to the step behind it.
		return reconcile.Result{}, nil
	}
	snapshot.Failure = r.failures.get(request.NamespacedName)
	decision := plan.Decide(snapshot, r.settings, r.clock.Now())
	err = r.carryOut(ctx, cluster, decision)
	if outdated(err) {
		return reconcile.Result{RequeueAfter: retryAfter}, nil
	}
	if err != nil {
		r.recorder.Eventf(cluster, nil, corev1.EventTypeWarning, eventFailing, eventFailing, "%s", r.failures.set(request.NamespacedName, err))
		return reconcile.Result{}, err
	}
	if snapshot.Failure != "" { // the status has it
		r.failures.forget(request.NamespacedName)
		return reconcile.Result{RequeueAfter: retryAfter}, nil
	}
	return reconcile.Result{RequeueAfter: decision.Wake}, nil
}

// outdated reports whether a write was rejected because an object has changed, or is held by PodOps. No user
// needs to see that.
func outdated(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsTooManyRequests(err) ||
		errors.Is(err, podopslifecycle.ErrStale) || errors.Is(err, podopslifecycle.ErrTerminating)
}

// SetupWithManager registers the controller. changed has an event for each cluster whose store has
// changed.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, workers int, changed <-chan event.GenericEvent) error {
	byLabel := handler.EnqueueRequestsFromMapFunc(clusterFor)
	err := ctrl.NewControllerManagedBy(mgr).
		Named("kvstorecluster").
		For(&kvstorev1.KVStoreCluster{}).
		Owns(&corev1.Service{}).
		Owns(&appsv1.StatefulSet{}).
		Owns(&batchv1.Job{}).
		Watches(&corev1.Pod{}, byLabel).
		Watches(&corev1.PersistentVolumeClaim{}, byLabel).
		WatchesRawSource(source.Channel(changed, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstFailureDelay, maxFailureDelay),
		}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the controller: %w", err)
	}
	return nil
}

// clusterFor returns the cluster of a pod or a claim.
func clusterFor(_ context.Context, object client.Object) []reconcile.Request {
	labels := object.GetLabels()
	name := labels[kvstorev1.InstanceLabelKey]
	if name == "" || labels[kvstorev1.ComponentLabelKey] != kvstorev1.ComponentMember {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: name}}}
}
