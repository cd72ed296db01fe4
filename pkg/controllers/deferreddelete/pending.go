package deferreddelete

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
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
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/podstate"
	"github.com/podops-dev/podops/pkg/runtime/observation"
	"github.com/podops-dev/podops/pkg/runtime/text"
	"github.com/podops-dev/podops/pkg/state/podfacts"
	"github.com/podops-dev/podops/pkg/state/podwriter"
	"github.com/podops-dev/podops/pkg/state/replicasetpods"
)

// Event reasons on pods. They never change.
const (
	// EventDeleteFinished reports that PodOps has deleted the pod for its label or PodOperation.
	EventDeleteFinished = "DeleteFinished"

	// EventDeleteUndone reports that the delete was cancelled.
	EventDeleteUndone = "DeleteUndone"
)

const (
	// deletedTTL is for how long a delete is recorded that the cache does not show yet.
	deletedTTL = time.Minute

	// retryStale is the delay after which the delete of a pod is retried after a conflict.
	retryStale = time.Second
)

// maxPurposeBytes bounds the name of the client in an event.
const maxPurposeBytes = 200

// PendingDeletes finishes or cancels the pending delete of one pod at a time, for every pod
// whose annotation records a pending delete, except the deletes that the controller of a
// ReplicaSet requested: ReplicaSetDeletes compares these with the surplus of the ReplicaSet.
type PendingDeletes struct {
	undoer

	apiReader client.Reader
	facts     *podfacts.Gatherer
	options   lifecycle.Options
	clock     clock.PassiveClock

	observed *observation.Tracker
	finished *podwriter.Versions // pods whose removal the cache may not show yet
	stale    *podwriter.Versions // pods that were written to, or with which a write had a conflict
}

// PendingConfig configures a PendingDeletes.
type PendingConfig struct {
	Client    client.Client // reads from a cache
	APIReader client.Reader
	Recorder  events.EventRecorder
	Metrics   *Metrics
	Facts     *podfacts.Gatherer
	Options   lifecycle.Options
	Repeats   *observation.Tracker
	Clock     clock.PassiveClock
}

// NewPendingDeletes returns a PendingDeletes.
func NewPendingDeletes(c PendingConfig) *PendingDeletes {
	return &PendingDeletes{
		undoer:    undoer{client: c.Client, recorder: c.Recorder, metrics: c.Metrics},
		apiReader: c.APIReader, facts: c.Facts, options: c.Options, clock: c.Clock,
		observed: c.Repeats, finished: podwriter.NewVersions(deletedTTL), stale: podwriter.NewVersions(podwriter.StaleFor),
	}
}

// SetupWithManager registers the controller on the leader.
func (p *PendingDeletes) SetupWithManager(mgr ctrl.Manager, workers int) error {
	ofOwner := handler.EnqueueRequestsFromMapFunc(p.pendingFor)
	return ctrl.NewControllerManagedBy(mgr).
		Named("pending-delete").
		Watches(&corev1.Pod{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicate.NewPredicateFuncs(isPending))).
		Watches(&appsv1.StatefulSet{}, ofOwner, builder.WithPredicates(edited())).
		Watches(&appsv1.DaemonSet{}, ofOwner, builder.WithPredicates(edited())).
		Watches(&batchv1.Job{}, ofOwner, builder.WithPredicates(edited())).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(p)
}

// isPending reports whether a pod has a pending delete, or should have.
func isPending(object client.Object) bool {
	_, requested := object.GetLabels()[appsv1alpha1.ToDeleteLabelKey]
	_, recorded := object.GetAnnotations()[appsv1alpha1.PendingDeleteAnnotationKey]
	return requested || recorded && deferreddelete.IsDeferred(object.GetLabels())
}

// edited passes the changes of a workload after which its controller may delete other pods.
func edited() predicate.Funcs {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, after := e.ObjectOld, e.ObjectNew
			return deferreddelete.Progress(before) != deferreddelete.Progress(after) ||
				before.GetDeletionTimestamp() == nil && after.GetDeletionTimestamp() != nil
		},
	}
}

// pendingFor returns requests for the pods of a workload that have a pending delete.
func (p *PendingDeletes) pendingFor(ctx context.Context, workload client.Object) []reconcile.Request {
	list := &corev1.PodList{}
	ofWorkload := client.MatchingFields{replicasetpods.ControllerUIDField: string(workload.GetUID())}
	err := p.client.List(ctx, list, client.InNamespace(workload.GetNamespace()), ofWorkload, client.UnsafeDisableDeepCopy)
	if err != nil {
		ctrllog.FromContext(ctx).Error(err, "Finding the pending deletes of a workload", "workload", client.ObjectKeyFromObject(workload))
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if isPending(&list.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}

// Reconcile finishes or cancels the pending delete of a pod, or begins the delete of a pod
// with the label to-delete.
func (p *PendingDeletes) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	pod := &corev1.Pod{}
	if err := p.client.Get(ctx, req.NamespacedName, pod); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	now := p.clock.Now()
	if pod.DeletionTimestamp != nil || p.finished.HasAny(pod.UID, now) {
		return reconcile.Result{}, nil
	}
	if p.stale.Has(pod, now) {
		return reconcile.Result{RequeueAfter: retryStale}, nil
	}
	if begun, err := p.beginLabelled(ctx, pod); begun || err != nil {
		return reconcile.Result{}, err
	}
	record, ok := deferreddelete.Pending(pod)
	if !ok || deferreddelete.OfOwner(pod) && deferreddelete.OfReplicaSet(pod) {
		return reconcile.Result{}, nil
	}
	state, err := p.state(ctx, pod, record)
	if err != nil {
		return reconcile.Result{}, err
	}
	step, lapse, wake := deferreddelete.Next(state, now)
	switch step {
	case deferreddelete.Finish:
		wake, err = p.finish(ctx, state)
	case deferreddelete.Cancel:
		err = p.cancel(ctx, pod, lapse)
	case deferreddelete.Wait:
	}
	return reconcile.Result{RequeueAfter: wake}, err
}

// beginLabelled begins the lifecycle of a pod with the label to-delete, or adds the request to the
// lifecycle in progress. It returns true if it has written.
func (p *PendingDeletes) beginLabelled(ctx context.Context, pod *corev1.Pod) (bool, error) {
	if _, requested := pod.Labels[appsv1alpha1.ToDeleteLabelKey]; !requested {
		return false, nil
	}
	request := deferreddelete.Request{Method: deferreddelete.MethodLabel, Actor: deferreddelete.ActorLabel}
	if reason, exempt := deferreddelete.Exempt(pod); exempt {
		if reason != deferreddelete.ReasonFinished {
			return false, nil
		}
		_, err := p.remove(ctx, pod, request.Begin(pod, ""))
		return true, err
	}
	if !deferreddelete.IsDeferred(pod.Labels) {
		return p.written(pod)(beginPending(ctx, p.client, pod, request, p.clock.Now()))
	}
	record, changed := request.Join(pod, p.clock.Now())
	if !changed {
		return false, nil
	}
	return p.written(pod)(patchRecord(ctx, p.client, pod, nil, record))
}

// written records that a version of a pod is outdated, since it was written to.
func (p *PendingDeletes) written(pod *corev1.Pod) func(*corev1.Pod, error) (bool, error) {
	return func(_ *corev1.Pod, err error) (bool, error) {
		if err == nil {
			p.stale.Note(pod, p.clock.Now())
		}
		return true, err
	}
}

// state gathers the facts of a pending delete.
func (p *PendingDeletes) state(ctx context.Context, pod *corev1.Pod, record appsv1alpha1.PendingDelete) (deferreddelete.State, error) {
	facts, err := p.facts.Gather(ctx, pod)
	if err != nil {
		return deferreddelete.State{}, fmt.Errorf("gathering facts of pod %s: %w", client.ObjectKeyFromObject(pod), err)
	}
	now := p.clock.Now()
	state := deferreddelete.State{Pod: pod, Record: record, Withheld: len(podstate.WithheldBy(pod.Annotations)) > 0}
	seen := deferreddelete.LastSeen(record)
	state.Unobserved = max(0, now.Sub(seen)-p.observed.Observe(pod.UID, aspectSeen, seen.String()))
	state.May, state.Wake = lifecycle.MayOperate(facts, appsv1alpha1.PodDeleteID, p.options, now)
	if state.Want, err = want(ctx, p.client, pod, record); err != nil {
		return deferreddelete.State{}, err
	}
	if state.Want != deferreddelete.Unwanted {
		p.observed.Forget(pod.UID, aspectUnwanted)
		return state, nil
	}
	state.UnwantedFor = p.observed.Observe(pod.UID, aspectUnwanted, record.Since)
	return state, nil
}

// want returns whether the owner of a pod wants the pod deleted. The owner matters only to the
// deletes of its own controller.
func want(ctx context.Context, reader client.Reader, pod *corev1.Pod, record appsv1alpha1.PendingDelete) (deferreddelete.Want, error) {
	if deferreddelete.Actor(record.Actor) != deferreddelete.ActorOwner {
		return deferreddelete.Wanted, nil
	}
	controller := metav1.GetControllerOfNoCopy(pod)
	if controller == nil {
		return deferreddelete.Unwanted, nil
	}
	owner, _ := deferreddelete.NewOwner(pod)
	if owner == nil {
		return deferreddelete.WantUnknown, nil
	}
	err := reader.Get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: controller.Name}, owner)
	if apierrors.IsNotFound(err) {
		return deferreddelete.Unwanted, nil
	}
	if err != nil {
		return deferreddelete.WantUnknown, fmt.Errorf("reading the owner of pod %s: %w", client.ObjectKeyFromObject(pod), err)
	}
	return deferreddelete.WantFor(owner, pod, record), nil
}

// finish carries out a pending delete. For a controller, it reads from the API server whether
// the owner still wants the pod deleted. It returns how soon to try again.
func (p *PendingDeletes) finish(ctx context.Context, state deferreddelete.State) (time.Duration, error) {
	wanted, err := want(ctx, p.apiReader, state.Pod, state.Record)
	if err != nil {
		return 0, err
	}
	if wanted != deferreddelete.Wanted {
		return retryStale, nil // the cache is behind
	}
	return p.remove(ctx, state.Pod, state.Record)
}

// remove deletes this very version of a pod, with its own grace period: if its lifecycle has ended
// meanwhile, the API server rejects the request.
func (p *PendingDeletes) remove(ctx context.Context, pod *corev1.Pod, record appsv1alpha1.PendingDelete) (time.Duration, error) {
	err := p.client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion})
	now := p.clock.Now()
	switch {
	case apierrors.IsNotFound(err):
		return 0, nil
	case apierrors.IsConflict(err):
		p.stale.Note(pod, now)
		return retryStale, nil
	case err != nil:
		return 0, fmt.Errorf("removing pod %s: %w", client.ObjectKeyFromObject(pod), err)
	}
	p.finished.Note(pod, now)
	p.recorder.Eventf(pod, nil, corev1.EventTypeNormal, EventDeleteFinished, "Delete", "%s", deletePurpose(record))
	return 0, nil
}

// deletePurpose describes the request for which a pod was deleted.
func deletePurpose(record appsv1alpha1.PendingDelete) string {
	if record.User == "" {
		return "deleted for the label " + appsv1alpha1.ToDeleteLabelKey
	}
	return fmt.Sprintf("deleted for %s, whose request was held until now", text.Line(record.User, maxPurposeBytes))
}

// cancel ends the lifecycle of a pod, which goes back into service.
func (p *PendingDeletes) cancel(ctx context.Context, pod *corev1.Pod, lapse deferreddelete.Lapse) error {
	undone, err := p.undo(ctx, pod, lapse, podwriter.PatchMetadata)
	if undone {
		p.observed.Forget(pod.UID, aspectUnwanted)
		p.stale.Note(pod, p.clock.Now())
	}
	return err
}
