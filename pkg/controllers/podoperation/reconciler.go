// Package podoperation carries out PodOperations. A round reads the targets from the cache, decides
// (pkg/core/podoperation), reports the status and writes to pods. It is the reference of an operation
// controller with pkg/podopslifecycle (docs/podoperation.md).
package podoperation

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/podoperation"
	"github.com/podops-dev/podops/pkg/runtime/backoff"
	"github.com/podops-dev/podops/pkg/state/podwriter"
)

const (
	// statusPace is the shortest time between two writes of an operation's status, unless the
	// reason of its conditions changes.
	statusPace = time.Second

	// retryConflict is the delay after which a pod is tried again after a conflict, if no event
	// comes earlier.
	retryConflict = time.Second

	// retryReport is the delay after which an operation is tried again whose cached version is
	// outdated: the events of its status and its finalizer start no round.
	retryReport = 100 * time.Millisecond

	// retryEviction is the delay after which an eviction is tried again that a PodDisruptionBudget
	// rejected, if the budget does not change earlier.
	retryEviction = 5 * time.Second
)

// Reconciler carries out one PodOperation at a time. It is safe for concurrent use.
type Reconciler struct {
	client   client.Client // reads from a cache
	live     client.Reader // reads from the API server
	recorder events.EventRecorder
	clock    clock.PassiveClock

	memory *memory
	stale  *podwriter.Versions // pods that were written to, or with which a write had a conflict
}

// New returns a Reconciler. c reads from a cache with the indexes StartedField and UIDField, live from the API server: a cache
// has the containers of those pods only that are operated on.
func New(c client.Client, live client.Reader, recorder events.EventRecorder, clk clock.PassiveClock) *Reconciler {
	return &Reconciler{
		client: c, live: live, recorder: recorder, clock: clk,
		memory: newMemory(), stale: podwriter.NewVersions(podwriter.StaleFor),
	}
}

// Reconcile advances an operation as far as its pods allow.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	operation := &appsv1alpha1.PodOperation{}
	if err := r.client.Get(ctx, req.NamespacedName, operation); err != nil {
		if apierrors.IsNotFound(err) {
			r.memory.forget(req.NamespacedName)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	isFull, err := r.isFull(ctx, operation)
	if err != nil {
		return reconcile.Result{}, err
	}
	if isFull && staysQueued(operation) {
		return reconcile.Result{RequeueAfter: podoperation.QueueDelay}, nil
	}
	snapshot, err := r.snapshot(ctx, operation, isFull)
	if err != nil {
		return reconcile.Result{}, err
	}
	snapshot.Blocked = r.memory.blocked(req.NamespacedName)
	decision := podoperation.Decide(snapshot)
	if decision.Status.StartTime == nil {
		r.memory.release(operation)
	}
	if decision.Status.CompletionTime != nil {
		r.memory.unblock(req.NamespacedName)
	}
	if decision.Protect {
		if err := r.changeFinalizer(ctx, operation, controllerutil.AddFinalizer); err != nil {
			return r.retried(err)
		}
	}
	due, err := r.report(ctx, operation, decision)
	if err != nil {
		return r.retried(err)
	}
	again, err := r.carryOut(ctx, adapter{operation: operation, isActive: r.isActive(ctx, operation.Namespace)}, decision.Steps)
	if err != nil {
		return reconcile.Result{}, err
	}
	if decision.More {
		again = backoff.MinDelay(again, time.Millisecond) // behind the operations of other namespaces
	}
	if err := r.end(ctx, operation, decision); err != nil {
		return r.retried(err)
	}
	return reconcile.Result{RequeueAfter: backoff.MinDelay(decision.Wake, backoff.MinDelay(due, again))}, nil
}

// staysQueued reports whether the status of an operation states already that it waits for others, and nothing has been
// requested since.
func staysQueued(operation *appsv1alpha1.PodOperation) bool {
	return readyReason(operation.Status) == appsv1alpha1.ReasonQueued && operation.Status.StartTime == nil &&
		operation.Status.ObservedGeneration == operation.Generation && operation.DeletionTimestamp == nil && !operation.Spec.Cancel
}

// retried tries again after a conflict: the cache is behind. A deleted operation is not retried.
func (r *Reconciler) retried(err error) (reconcile.Result, error) {
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: retryReport}, nil
	}
	return reconcile.Result{}, client.IgnoreNotFound(err)
}

// changeFinalizer writes the finalizer as change leaves it. Then operation has the resourceVersion that is stored.
func (r *Reconciler) changeFinalizer(ctx context.Context, operation *appsv1alpha1.PodOperation, change func(client.Object, string) bool) error {
	before := operation.DeepCopy()
	change(operation, appsv1alpha1.PodOperationFinalizer)
	if err := r.client.Patch(ctx, operation, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("writing the finalizer: %w", err)
	}
	return nil
}

// report writes the status if it differs, and returns how soon it is due otherwise. The start and the end
// are never delayed: later decisions depend on them.
func (r *Reconciler) report(ctx context.Context, operation *appsv1alpha1.PodOperation, decision podoperation.Decision) (time.Duration, error) {
	if equality.Semantic.DeepEqual(operation.Status, decision.Status) {
		return 0, nil
	}
	key, now := client.ObjectKeyFromObject(operation), r.clock.Now()
	before := operation.DeepCopy()
	same := before.Status.StartTime.Equal(decision.Status.StartTime) && before.Status.CompletionTime.Equal(decision.Status.CompletionTime) &&
		readyReason(before.Status) == readyReason(decision.Status)
	if wait := r.memory.untilReport(key, now); wait > 0 && same {
		return wait, nil
	}
	operation.Status = *decision.Status.DeepCopy()
	err := r.client.Status().Patch(ctx, operation, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return 0, fmt.Errorf("writing the status: %w", err)
	}
	r.memory.noteReport(key, now)
	r.recordProgress(operation, before.Status)
	return 0, nil
}

// end removes the finalizer of an operation that has left nothing on pods, and deletes the operation
// when its time has come.
func (r *Reconciler) end(ctx context.Context, operation *appsv1alpha1.PodOperation, decision podoperation.Decision) error {
	if decision.Release {
		if err := r.changeFinalizer(ctx, operation, controllerutil.RemoveFinalizer); err != nil {
			return err
		}
	}
	if !decision.Delete {
		return nil
	}
	preconditions := client.Preconditions{UID: &operation.UID, ResourceVersion: &operation.ResourceVersion}
	if err := r.client.Delete(ctx, operation, preconditions); err != nil {
		return fmt.Errorf("deleting the finished operation: %w", err)
	}
	return nil
}
