package deferreddelete

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/podops-dev/podops/pkg/backoff"
	"github.com/podops-dev/podops/pkg/deferreddelete"
	"github.com/podops-dev/podops/pkg/observation"
	"github.com/podops-dev/podops/pkg/podwriter"
	"github.com/podops-dev/podops/pkg/replicasetpods"
	"github.com/podops-dev/podops/pkg/replicasetscale"
)

// Event reasons on pods. They never change.
const (
	// EventDeleteFinished reports that the pod was deleted for its owner.
	EventDeleteFinished = "DeleteFinished"

	// EventDeleteUndone reports that the delete was cancelled, because the owner needs the pod again.
	EventDeleteUndone = "DeleteUndone"
)

const (
	// cancelAfter is the time for which the owner must have needed a pod again before its
	// delete is cancelled. A rollout that pauses between two steps must not lose its
	// progress.
	cancelAfter = 10 * time.Second

	// finishAfter is the time that the owner has to delete a pod itself once that is allowed.
	finishAfter = 2 * time.Second

	// deletedTTL is for how long a delete is recorded that the cache does not show yet.
	deletedTTL = time.Minute

	// retryStale is the delay after which the delete of a pod is retried after a conflict.
	retryStale = time.Second
)

// Finisher finishes or cancels the deferred deletes of one ReplicaSet at a time.
type Finisher struct {
	client    client.Client
	apiReader client.Reader
	owners    owners
	recorder  events.EventRecorder
	metrics   *Metrics
	clock     clock.PassiveClock

	observed *observation.Tracker
	deleted  *podwriter.Versions // pods whose delete the cache may not show yet
	stale    *podwriter.Versions // pods with which a delete had a conflict
}

// Aspects of a pod whose delete is deferred, for observation.Tracker. Its state is the begin of the
// lifecycle: another lifecycle begins all waits again.
const (
	aspectAllowed  = "allowed"  // the owner may delete the pod
	aspectNeeded   = "needed"   // the owner needs the pod again
	aspectUnwanted = "unwanted" // the owner does not want the pod deleted
)

// NewFinisher returns a Finisher. c reads from a cache, apiReader from the API server.
func NewFinisher(
	c client.Client, apiReader client.Reader, recorder events.EventRecorder, metrics *Metrics, clk clock.PassiveClock,
) *Finisher {
	return &Finisher{
		client: c, apiReader: apiReader, owners: owners{reader: replicasetpods.Reader{Reader: c}}, recorder: recorder, metrics: metrics, clock: clk,
		observed: observation.NewTracker(clk), deleted: podwriter.NewVersions(deletedTTL), stale: podwriter.NewVersions(podwriter.StaleFor),
	}
}

// SetupWithManager registers the controller on the leader.
func (f *Finisher) SetupWithManager(mgr ctrl.Manager, workers int) error {
	deferred := predicate.NewPredicateFuncs(func(object client.Object) bool { return deferreddelete.IsDeferred(object.GetLabels()) })
	return ctrl.NewControllerManagedBy(mgr).
		Named("deferred-delete").
		For(&appsv1.ReplicaSet{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(ownerOf), builder.WithPredicates(deferred)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(f)
}

func ownerOf(_ context.Context, object client.Object) []reconcile.Request {
	controller := metav1.GetControllerOf(object)
	if controller == nil || controller.Kind != "ReplicaSet" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: controller.Name}}}
}

// Reconcile finishes and cancels the deferred deletes of one ReplicaSet.
func (f *Finisher) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	set := &appsv1.ReplicaSet{}
	if err := f.client.Get(ctx, req.NamespacedName, set); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	plan, err := f.owners.planOf(ctx, set)
	if err != nil || set.DeletionTimestamp != nil {
		return reconcile.Result{}, err
	}
	due, wait := f.due(plan)
	again, err := f.finish(ctx, set, due)
	if err != nil {
		return reconcile.Result{}, err
	}
	later, err := f.undo(ctx, plan)
	return reconcile.Result{RequeueAfter: backoff.MinDelay(backoff.MinDelay(wait, again), later)}, err
}

// due returns the surplus pods whose deletion is allowed and overdue, and how soon the next pod
// is due. The owner has finishAfter to delete them itself: the label operate wakes it.
func (f *Finisher) due(plan deferreddelete.Plan) (due []*corev1.Pod, wait time.Duration) {
	now, surplus := f.clock.Now(), plan.Surplus
	for _, pod := range plan.Keep {
		if surplus == 0 || !replicasetscale.IsGranted(pod) {
			f.observed.Forget(pod.UID, aspectAllowed)
			continue
		}
		surplus--
		switch left := finishAfter - f.observed.Observe(pod.UID, aspectAllowed, deferreddelete.Begun(pod)); {
		case left > 0:
			wait = backoff.MinDelay(wait, left)
		case !f.deleted.HasAny(pod.UID, now):
			due = append(due, pod)
		}
	}
	return due, wait
}

// finish deletes pods, provided that the API server has the same version of the ReplicaSet that
// the plan was made for. It returns how soon to retry pods with a conflict; the watch usually
// delivers them earlier.
func (f *Finisher) finish(ctx context.Context, set *appsv1.ReplicaSet, due []*corev1.Pod) (again time.Duration, err error) {
	if len(due) == 0 {
		return 0, nil
	}
	current := &appsv1.ReplicaSet{}
	if err := f.apiReader.Get(ctx, client.ObjectKeyFromObject(set), current); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	if current.Generation != set.Generation || current.UID != set.UID {
		return 0, nil // the cache is behind; its event comes
	}
	for _, pod := range due {
		if f.stale.Has(pod, f.clock.Now()) {
			again = retryStale
			continue
		}
		err := f.client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion})
		switch {
		case apierrors.IsNotFound(err):
			continue
		case apierrors.IsConflict(err):
			f.stale.Note(pod, f.clock.Now())
			again = retryStale
			continue
		case err != nil:
			return 0, fmt.Errorf("deleting pod %s: %w", client.ObjectKeyFromObject(pod), err)
		}
		f.deleted.Note(pod, f.clock.Now())
		f.recorder.Eventf(pod, nil, corev1.EventTypeNormal, EventDeleteFinished, "Delete",
			"deleted for ReplicaSet %s, whose delete was deferred until now", set.Name)
	}
	return again, nil
}

// undo cancels deletes of pods that the owner has needed again for long enough. It returns how soon
// the next cancellation is due.
func (f *Finisher) undo(ctx context.Context, plan deferreddelete.Plan) (time.Duration, error) {
	var wait time.Duration
	for _, pod := range plan.Keep {
		f.observed.Forget(pod.UID, aspectNeeded)
	}
	for _, pod := range plan.Cancel {
		if left := cancelAfter - f.observed.Observe(pod.UID, aspectNeeded, deferreddelete.Begun(pod)); left > 0 {
			wait = backoff.MinDelay(wait, left)
			continue
		}
		if _, err := undoPending(ctx, f.client, pod); err != nil {
			return 0, err
		}
		f.observed.Forget(pod.UID, aspectNeeded)
		f.metrics.lapsed(deferreddelete.LapseUnwanted)
		f.recorder.Eventf(pod, nil, corev1.EventTypeNormal, EventDeleteUndone, "Undo", "the owner needs the pod again")
	}
	return wait, nil
}
