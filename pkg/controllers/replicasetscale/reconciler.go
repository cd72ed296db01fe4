// Package replicasetscale carries out scale-downs of ReplicaSets: it begins the deletion of as many pods as
// a ReplicaSet has too many, and lets one that admission has kept be lowered as its pods are granted operate. Package deferreddelete undoes deletions that are no longer requested.
package replicasetscale

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
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
	"github.com/podops-dev/podops/pkg/podwriter"
	"github.com/podops-dev/podops/pkg/replicasetpods"
	"github.com/podops-dev/podops/pkg/replicasetscale"
)

// EventReplicaSetLowered reports on a ReplicaSet that PodOps has lowered it towards the number that
// was requested. It never changes.
const EventReplicaSetLowered = "ReplicaSetLowered"

// retryStale is the delay after which a ReplicaSet is reconciled again after a conflict. The
// watch usually delivers it earlier.
const retryStale = time.Second

// Reconciler carries out the scale-downs of one ReplicaSet at a time.
type Reconciler struct {
	client   client.Client
	cache    replicasetpods.Reader
	recorder events.EventRecorder
	metrics  *Metrics
	clock    clock.PassiveClock

	mu    sync.Mutex
	state map[types.NamespacedName]*state
}

// state is the state of a ReplicaSet that a Reconciler keeps between two rounds.
type state struct {
	uid   types.UID
	waits replicasetscale.Waits

	// begun are pods as the API server stored them, until the cache shows them.
	begun map[types.UID]*corev1.Pod
}

// New returns a Reconciler. c writes to the API server and reads from the cache, as cache does.
func New(c client.Client, cache replicasetpods.Reader, recorder events.EventRecorder, metrics *Metrics, clk clock.PassiveClock) *Reconciler {
	return &Reconciler{client: c, cache: cache, recorder: recorder, metrics: metrics, clock: clk, state: map[types.NamespacedName]*state{}}
}

// SetupWithManager registers the controller on the leader.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, workers int) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("replicaset-scale").
		For(&appsv1.ReplicaSet{}, builder.WithPredicates(scaled())).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(replicaSetOf), builder.WithPredicates(leaving())).
		Watches(&appsv1.Deployment{}, handler.EnqueueRequestsFromMapFunc(r.replicaSetsOf), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
}

// scaled passes events of ReplicaSets that have, or had, a kept request or more pods than replicas.
func scaled() predicate.Funcs {
	funcs := beforeOrAfter(func(object client.Object) bool {
		set, ok := object.(*appsv1.ReplicaSet)
		return ok && (replicasetscale.HasAnnotations(set) || int(set.Status.Replicas) > replicasetscale.ReplicasOf(set.Spec.Replicas))
	})
	funcs.DeleteFunc = func(event.DeleteEvent) bool { return true }
	return funcs
}

// leaving passes events of pods whose deletion has, or had, begun. Each reconciliation reads all pods of
// the ReplicaSet, and pods that stay change its scale only through its status.
func leaving() predicate.Funcs {
	return beforeOrAfter(func(object client.Object) bool {
		pod, ok := object.(*corev1.Pod)
		return ok && (replicasetscale.IsDeleting(pod) || replicasetscale.IsBegun(pod))
	})
}

// beforeOrAfter passes events of objects that match before or after the event.
func beforeOrAfter(match func(client.Object) bool) predicate.Funcs {
	funcs := predicate.NewPredicateFuncs(match)
	funcs.UpdateFunc = func(e event.UpdateEvent) bool { return match(e.ObjectOld) || match(e.ObjectNew) }
	return funcs
}

func replicaSetOf(_ context.Context, pod client.Object) []reconcile.Request {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "ReplicaSet" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: pod.GetNamespace(), Name: owner.Name}}}
}

// replicaSetsOf returns requests for the ReplicaSets of a Deployment that have a kept request: a
// change of the Deployment may withdraw it.
func (r *Reconciler) replicaSetsOf(ctx context.Context, deployment client.Object) []reconcile.Request {
	kept, err := r.cache.Kept(ctx, deployment)
	if err != nil {
		ctrllog.FromContext(ctx).Error(err, "Finding the ReplicaSets of a Deployment", "deployment", client.ObjectKeyFromObject(deployment))
	}
	var requests []reconcile.Request
	for _, key := range kept {
		requests = append(requests, reconcile.Request{NamespacedName: key})
	}
	return requests
}

// Reconcile takes the next steps of a scale-down.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	set := &appsv1.ReplicaSet{}
	if err := r.client.Get(ctx, req.NamespacedName, set); err != nil {
		r.metrics.see(req.NamespacedName, false)
		r.forget(req.NamespacedName)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if set.DeletionTimestamp != nil {
		r.metrics.see(req.NamespacedName, false)
		r.forget(req.NamespacedName)
		return reconcile.Result{}, nil
	}
	own := r.stateOf(set)
	snapshot, err := r.snapshot(ctx, set, own)
	if err != nil {
		return reconcile.Result{}, err
	}
	r.metrics.see(req.NamespacedName, snapshot.IsHeld())
	decision, waits := replicasetscale.Decide(snapshot, own.waits, r.clock.Now())
	own.waits = waits
	if err := r.begin(ctx, snapshot, own, decision.Begin); err != nil {
		return reconcile.Result{}, err
	}
	for _, pod := range decision.Unpin {
		if _, err := podwriter.PatchMetadata(ctx, r.client, pod, nil, replicasetscale.Unpin(pod)); err != nil {
			return reconcile.Result{}, err
		}
	}
	again, err := r.write(ctx, set, decision)
	if !replicasetscale.HasAnnotations(set) && len(own.begun) == 0 && own.waits == (replicasetscale.Waits{}) {
		r.forget(req.NamespacedName)
	}
	if again == 0 {
		again = decision.Wake
	}
	return reconcile.Result{RequeueAfter: again}, err
}

// snapshot reads a ReplicaSet's pods and Deployment.
func (r *Reconciler) snapshot(ctx context.Context, set *appsv1.ReplicaSet, own *state) (replicasetscale.Snapshot, error) {
	pods, err := r.cache.Pods(ctx, set.Namespace, set.UID)
	if err != nil {
		return replicasetscale.Snapshot{}, fmt.Errorf("ReplicaSet %s: %w", set.Name, err)
	}
	workload, err := r.cache.Workload(ctx, set)
	if err != nil {
		return replicasetscale.Snapshot{}, fmt.Errorf("ReplicaSet %s: %w", set.Name, err)
	}
	return replicasetscale.Snapshot{Set: set, Workload: workload, Pods: own.newest(pods)}, nil
}

// newest returns the pods, with the stored version of each pod that the cache still shows as
// of before its deletion began.
func (s *state) newest(pods []*corev1.Pod) []*corev1.Pod {
	behind := map[types.UID]*corev1.Pod{}
	for i, pod := range pods {
		stored, ok := s.begun[pod.UID]
		if !ok {
			continue
		}
		if order, err := resourceversion.CompareResourceVersion(pod.ResourceVersion, stored.ResourceVersion); err == nil && order < 0 {
			pods[i], behind[pod.UID] = stored, stored
		}
	}
	s.begun = behind
	return pods
}

// begin begins the deletion of pods, in the order of the ReplicaSet controller.
func (r *Reconciler) begin(ctx context.Context, snapshot replicasetscale.Snapshot, own *state, count int) error {
	if count == 0 {
		return nil
	}
	related, err := r.cache.Related(ctx, snapshot.Set)
	if err != nil {
		return fmt.Errorf("ReplicaSet %s: %w", snapshot.Set.Name, err)
	}
	now := r.clock.Now()
	for _, pod := range replicasetscale.Victims(snapshot.Pods, related, now) {
		if replicasetscale.IsDeleting(pod) {
			continue
		}
		if count == 0 {
			return nil
		}
		count--
		labels, annotations := replicasetscale.Begin(pod, now)
		stored, err := podwriter.PatchMetadata(ctx, r.client, pod, labels, annotations)
		if err != nil {
			return err
		}
		if stored != nil {
			own.begun[pod.UID] = stored
		}
	}
	return nil
}

// write changes the ReplicaSet. A demand is removed, and the ReplicaSet lowered, only in the version
// that the decision was made for. It returns how soon to decide again.
func (r *Reconciler) write(ctx context.Context, set *appsv1.ReplicaSet, decision replicasetscale.Decision) (again time.Duration, err error) {
	if len(decision.Annotations) == 0 && decision.Lower == nil {
		return 0, nil
	}
	metadata := map[string]any{"uid": set.UID, "annotations": decision.Annotations}
	object := map[string]any{"metadata": metadata}
	if _, removes := decision.Annotations[appsv1alpha1.DesiredReplicasAnnotationKey]; removes || decision.Lower != nil {
		metadata["resourceVersion"] = set.ResourceVersion
	}
	if decision.Lower != nil {
		object["spec"] = map[string]any{"replicas": *decision.Lower}
	}
	patch, err := json.Marshal(object)
	if err != nil {
		return 0, fmt.Errorf("encoding the ReplicaSet: %w", err)
	}
	stored := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Name: set.Name}}
	err = r.client.Patch(ctx, stored, client.RawPatch(types.MergePatchType, patch))
	switch {
	case apierrors.IsNotFound(err):
		return 0, nil
	case apierrors.IsConflict(err):
		return retryStale, nil
	case err != nil:
		return 0, fmt.Errorf("patching ReplicaSet %s: %w", client.ObjectKeyFromObject(set), err)
	}
	if decision.Lower != nil {
		r.recorder.Eventf(set, nil, corev1.EventTypeNormal, EventReplicaSetLowered, "Scale",
			"lowered from %d to %d replicas: pods may be deleted now", replicasetscale.ReplicasOf(set.Spec.Replicas), *decision.Lower)
	}
	return 0, nil
}

// stateOf returns the state of a ReplicaSet. One ReplicaSet is reconciled by one worker at a time.
func (r *Reconciler) stateOf(set *appsv1.ReplicaSet) *state {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := client.ObjectKeyFromObject(set)
	own, ok := r.state[key]
	if !ok || own.uid != set.UID {
		own = &state{uid: set.UID, begun: map[types.UID]*corev1.Pod{}}
		r.state[key] = own
	}
	return own
}

func (r *Reconciler) forget(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.state, key)
}
