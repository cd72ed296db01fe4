package podoperation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// gather is the time for which events of pods are collected before a round: pods of one batch change
// together.
const gather = 50 * time.Millisecond

// SetupWithManager registers the controller on the leader. workers is how many operations advance at once.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, workers int) error {
	for field, index := range map[string]client.IndexerFunc{StartedField: IndexStarted, UIDField: IndexUID} {
		// Indexes are registered before the cache starts, so no context can end it.
		if err := mgr.GetFieldIndexer().IndexField(context.Background(), &appsv1alpha1.PodOperation{}, field, index); err != nil {
			return fmt.Errorf("indexing PodOperations: %w", err)
		}
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("podoperation").
		For(&appsv1alpha1.PodOperation{}, builder.WithPredicates(requested())).
		Watches(&appsv1alpha1.PodOperation{}, r.others()).
		Watches(&corev1.Pod{}, handler.Funcs{CreateFunc: r.created, UpdateFunc: r.updated, DeleteFunc: r.deleted}).
		Watches(&policyv1.PodDisruptionBudget{}, handler.Funcs{UpdateFunc: r.evicting}).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
}

// requested drops the events of status and finalizer, which the controller itself writes.
func requested() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() ||
			e.ObjectOld.GetDeletionTimestamp() == nil && e.ObjectNew.GetDeletionTimestamp() != nil
	}}
}

// others wakes operations by the events of other operations.
func (r *Reconciler) others() handler.Funcs {
	return handler.Funcs{
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, isBefore := e.ObjectOld.(*appsv1alpha1.PodOperation)
			after, isAfter := e.ObjectNew.(*appsv1alpha1.PodOperation)
			if isBefore && isAfter {
				r.ended(ctx, before, after, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			if before, ok := e.Object.(*appsv1alpha1.PodOperation); ok {
				r.ended(ctx, before, nil, q)
			}
		},
	}
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// created wakes the operations that are no older than a pod: their target may name it.
func (r *Reconciler) created(ctx context.Context, e event.CreateEvent, q queue) {
	since := e.Object.GetCreationTimestamp()
	r.wake(ctx, e.Object.GetNamespace(), q, func(operation *appsv1alpha1.PodOperation) bool {
		return !operation.CreationTimestamp.Before(&since)
	})
}

// updated wakes the operations that have a label or a record on the pod. Other operations wait for no
// change of it.
func (r *Reconciler) updated(ctx context.Context, e event.UpdateEvent, q queue) {
	r.wakeUIDs(ctx, e.ObjectNew.GetNamespace(), q, recordedOperations(e.ObjectOld).Union(recordedOperations(e.ObjectNew)))
}

// deleted wakes the operations that have a label or a record on the pod, and every operation in progress: its target may
// have named the pod.
func (r *Reconciler) deleted(ctx context.Context, e event.DeleteEvent, q queue) {
	r.wakeUIDs(ctx, e.Object.GetNamespace(), q, recordedOperations(e.Object))
	r.wake(ctx, e.Object.GetNamespace(), q, func(*appsv1alpha1.PodOperation) bool { return true })
}

// evicting wakes the operations that evict pods: the budget may have rejected an eviction.
func (r *Reconciler) evicting(ctx context.Context, e event.UpdateEvent, q queue) {
	r.wake(ctx, e.ObjectNew.GetNamespace(), q, func(operation *appsv1alpha1.PodOperation) bool {
		return operation.Spec.Action.Type == appsv1alpha1.ActionEvict
	})
}

// ended wakes the oldest operations that have not started, when another operation has ended.
func (r *Reconciler) ended(ctx context.Context, before, after *appsv1alpha1.PodOperation, q queue) {
	if !isStarted(before) || after != nil && after.Status.CompletionTime == nil {
		return // it had no place
	}
	list := &appsv1alpha1.PodOperationList{}
	if err := r.client.List(ctx, list, client.InNamespace(before.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		ctrllog.FromContext(ctx).Error(err, "Finding the operations of a namespace", "namespace", before.Namespace)
		return
	}
	queued := slices.DeleteFunc(list.Items, func(o appsv1alpha1.PodOperation) bool { return readyReason(o.Status) != appsv1alpha1.ReasonQueued })
	slices.SortFunc(queued, func(a, b appsv1alpha1.PodOperation) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	for i := range queued[:min(len(queued), appsv1alpha1.MaxActivePodOperations)] {
		q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&queued[i])}, gather)
	}
}

// wake adds the operations of a namespace that are in progress, and fit. Others wait for no pod.
func (r *Reconciler) wake(ctx context.Context, namespace string, q queue, fits func(*appsv1alpha1.PodOperation) bool) {
	started, err := r.started(ctx, namespace)
	if err != nil {
		ctrllog.FromContext(ctx).Error(err, "Finding the operations of a namespace", "namespace", namespace)
		return
	}
	for i := range started {
		if fits(&started[i]) {
			q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&started[i])}, gather)
		}
	}
}

// wakeUIDs adds the operations with these UIDs that are in progress or have a finalizer: the lifecycle of an operation
// that has ended may be left on a pod.
func (r *Reconciler) wakeUIDs(ctx context.Context, namespace string, q queue, uids sets.Set[types.UID]) {
	for uid := range uids {
		found, err := r.byUID(ctx, namespace, uid)
		if err != nil {
			ctrllog.FromContext(ctx).Error(err, "Finding an operation", "namespace", namespace, "operation", uid)
			return
		}
		for i := range found {
			if isStarted(&found[i]) || len(found[i].Finalizers) > 0 {
				q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&found[i])}, gather)
			}
		}
	}
}

// recordedOperations returns the UIDs of the operations that have a label or a record on the pod.
func recordedOperations(pod client.Object) sets.Set[types.UID] {
	uids := sets.Set[types.UID]{}
	for key := range pod.GetLabels() {
		_, id, _ := strings.Cut(key, "/")
		if uid, ok := strings.CutPrefix(id, appsv1alpha1.PodOperationIDPrefix); ok {
			uids.Insert(types.UID(uid))
		}
	}
	for key := range pod.GetAnnotations() {
		if uid, ok := strings.CutPrefix(key, appsv1alpha1.PodOperationAnnotationPrefix+"/"); ok {
			uids.Insert(types.UID(uid))
		}
	}
	return uids
}
