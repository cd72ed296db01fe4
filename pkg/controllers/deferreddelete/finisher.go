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

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/deferreddelete"
	"github.com/podops-dev/podops/pkg/lifecycle"
	"github.com/podops-dev/podops/pkg/podfacts"
	"github.com/podops-dev/podops/pkg/podwriter"
)

// Event reasons on pods. They never change.
const (
	// EventDeleteFinished: the pod was deleted for its owner.
	EventDeleteFinished = "DeleteFinished"

	// EventDeleteUndone: the owner no longer wants the pod gone.
	EventDeleteUndone = "DeleteUndone"
)

const (
	// unwantedFor is how long a promise has to be unwanted before it is taken back. A
	// rollout that pauses between two steps must not lose what it has prepared.
	unwantedFor = 10 * time.Second

	// deleteMemory is how long a delete is remembered that the cache does not show.
	deleteMemory = time.Minute

	// retryMovedOn is how soon a pod is looked at again that had moved on.
	retryMovedOn = time.Second
)

// Finisher finishes or takes back the promises of one ReplicaSet at a time.
type Finisher struct {
	client   client.Client
	live     client.Reader
	owners   owners
	recorder events.EventRecorder
	facts    *podfacts.Gatherer
	options  lifecycle.Options
	clock    clock.PassiveClock

	unwanted      memory // since when a promise is unwanted
	deleted       memory // when a pod was deleted
	staleVersions podwriter.StaleVersions
}

// NewFinisher returns a Finisher. c reads from a cache, live from the API server.
func NewFinisher(
	c client.Client, live client.Reader, recorder events.EventRecorder, facts *podfacts.Gatherer, options lifecycle.Options,
	clk clock.PassiveClock,
) *Finisher {
	return &Finisher{
		client: c, live: live, owners: owners{reader: c}, recorder: recorder, facts: facts, options: options, clock: clk,
		unwanted: newMemory(), deleted: newMemory(),
	}
}

// SetupWithManager registers the controller on the leader.
func (k *Finisher) SetupWithManager(mgr ctrl.Manager, workers int) error {
	promised := predicate.NewPredicateFuncs(func(object client.Object) bool { return deferreddelete.IsPromised(object.GetLabels()) })
	return ctrl.NewControllerManagedBy(mgr).
		Named("deferred-delete").
		For(&appsv1.ReplicaSet{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(ownerOf), builder.WithPredicates(promised)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(k)
}

func ownerOf(_ context.Context, object client.Object) []reconcile.Request {
	controller := metav1.GetControllerOf(object)
	if controller == nil || controller.Kind != "ReplicaSet" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: controller.Name}}}
}

// Reconcile keeps the promises of one ReplicaSet.
func (k *Finisher) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	set := &appsv1.ReplicaSet{}
	if err := k.client.Get(ctx, req.NamespacedName, set); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	promises, err := k.owners.promisesOf(ctx, set)
	if err != nil || set.DeletionTimestamp != nil {
		return reconcile.Result{}, err
	}
	due, wait, err := k.due(ctx, promises.Kept)
	if err != nil {
		return reconcile.Result{}, err
	}
	again, err := k.finish(ctx, set, due)
	if err != nil {
		return reconcile.Result{}, err
	}
	later, err := k.undo(ctx, promises)
	return reconcile.Result{RequeueAfter: minDelay(minDelay(wait, again), later)}, err
}

// due are the pods that may be operated on now, and how soon time alone makes it so
// for another one. The delete takes the place of operate: to write the label first
// would cost a request for nobody to read it.
func (k *Finisher) due(ctx context.Context, pods []*corev1.Pod) (due []*corev1.Pod, wait time.Duration, err error) {
	now := k.clock.Now()
	for _, pod := range pods {
		facts, err := k.facts.Gather(ctx, pod)
		if err != nil {
			return nil, 0, fmt.Errorf("gathering facts of pod %s: %w", client.ObjectKeyFromObject(pod), err)
		}
		may, wake := lifecycle.MayOperate(facts, appsv1alpha1.PodDeleteID, k.options, now)
		switch {
		case !may:
			wait = minDelay(wait, wake)
		case k.deleted.age(pod.UID, now) == 0:
			due = append(due, pod)
		}
	}
	return due, wait, nil
}

// sooner is the shorter of two waits; 0 is none.
func minDelay(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// finish deletes pods, if the ReplicaSet, as the API server has it, is the one that the
// promises were compared with. It returns how soon to look again at pods that had moved on;
// the watch brings them sooner, as a rule.
func (k *Finisher) finish(ctx context.Context, set *appsv1.ReplicaSet, due []*corev1.Pod) (again time.Duration, err error) {
	if len(due) == 0 {
		return 0, nil
	}
	current := &appsv1.ReplicaSet{}
	if err := k.live.Get(ctx, client.ObjectKeyFromObject(set), current); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	if current.Generation != set.Generation || current.UID != set.UID {
		return 0, nil // the cache is behind; its event comes
	}
	for _, pod := range due {
		if k.staleVersions.Has(pod, k.clock.Now()) {
			again = retryMovedOn
			continue
		}
		err := k.client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion})
		switch {
		case apierrors.IsNotFound(err):
			continue
		case apierrors.IsConflict(err):
			k.staleVersions.Note(pod, k.clock.Now())
			again = retryMovedOn
			continue
		case err != nil:
			return 0, fmt.Errorf("deleting pod %s: %w", client.ObjectKeyFromObject(pod), err)
		}
		k.deleted.note(pod.UID, k.clock.Now())
		k.recorder.Eventf(pod, nil, corev1.EventTypeNormal, EventDeleteFinished, "Delete",
			"deleted for ReplicaSet %s, whose delete was held until now", set.Name)
	}
	return again, nil
}

// undo takes back promises that have been unwanted for long enough. It returns how
// soon the next one is due.
func (k *Finisher) undo(ctx context.Context, promises deferreddelete.Promises) (time.Duration, error) {
	var wait time.Duration
	now := k.clock.Now()
	for _, pod := range promises.Kept {
		k.unwanted.forget(pod.UID)
	}
	for _, pod := range promises.Unwanted {
		age := k.unwanted.age(pod.UID, now)
		if age == 0 {
			k.unwanted.note(pod.UID, now)
		}
		if left := unwantedFor - age; left > 0 {
			wait = minDelay(wait, left)
			continue
		}
		_, err := patchLabels(ctx, k.client, pod, map[string]string{
			appsv1alpha1.UndoOperationTypeLabelPrefix + "/" + appsv1alpha1.PodDeleteID: appsv1alpha1.DeleteOperationType,
		})
		if err != nil {
			return 0, err
		}
		k.unwanted.forget(pod.UID)
		k.recorder.Eventf(pod, nil, corev1.EventTypeNormal, EventDeleteUndone, "Undo", "the owner no longer wants the pod gone")
	}
	k.unwanted.prune(now, 10*unwantedFor)
	k.deleted.prune(now, deleteMemory)
	return wait, nil
}
