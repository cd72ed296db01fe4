// Package replicasetscale begins the deletion of as many pods as a ReplicaSet has too many, and wakes the controller
// of Deployments once admission lets it lower a ReplicaSet. It changes no number of replicas and deletes no pod.
// Package deferreddelete undoes deletions that are no longer wanted.
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
	"github.com/podops-dev/podops/pkg/core/replicasetscale"
	"github.com/podops-dev/podops/pkg/runtime/backoff"
	"github.com/podops-dev/podops/pkg/state/podwriter"
	"github.com/podops-dev/podops/pkg/state/replicasetpods"
)

// EventScaleDownDropped reports on a ReplicaSet without a Deployment that a request to lower it, which an earlier version
// has kept, is not carried out. It never changes.
const EventScaleDownDropped = "ScaleDownDropped"

// Deletes cancels deletes of a ReplicaSet's pods that are not wanted any more, or that its controller does not carry out. target is
// the number of pods that the ReplicaSet is to have, others the number of its pods without the control label. Cancel reports whether it
// has cancelled a delete that the controller might have carried out, and returns how soon to call it again; 0 if only a change matters.
//
// Exchange cancels the delete of a pod that waits so that another pod begins, and reports whether it has.
type Deletes interface {
	Exchange(ctx context.Context, pod *corev1.Pod) (bool, error)
	Cancel(ctx context.Context, target, others int, pods []*corev1.Pod) (forgone bool, again time.Duration, err error)
}

// Reconciler carries out the scale-downs of one ReplicaSet at a time.
type Reconciler struct {
	client   client.Client
	cache    replicasetpods.Reader
	deletes  Deletes
	recorder events.EventRecorder
	metrics  *Metrics
	clock    clock.PassiveClock

	// workloads has the turns of each workload: its ReplicaSets take their steps one after the other, since the surplus of one
	// depends on the deletions that have begun in the others. A worker that waits for its turn ends with the manager.
	workloads turns

	mu    sync.Mutex
	state map[types.NamespacedName]*state
}

// places is the number of turns that the workloads share.
const places = 256

// state is the state of a ReplicaSet that a Reconciler keeps between two rounds.
type state struct {
	uid   types.UID
	waits replicasetscale.Waits

	// begun are pods as the API server stored them, until the cache shows them; the Reconciler's mutex guards it.
	begun map[types.UID]*corev1.Pod

	attempts map[types.UID]replicasetscale.Attempt
}

// New returns a Reconciler. c writes to the API server and reads from the cache.
func New(c client.Client, deletes Deletes, recorder events.EventRecorder, metrics *Metrics, clk clock.PassiveClock) *Reconciler {
	return &Reconciler{
		client: c, cache: replicasetpods.Reader{Reader: c}, deletes: deletes, recorder: recorder, metrics: metrics, clock: clk,
		workloads: newTurns(places), state: map[types.NamespacedName]*state{},
	}
}

// SetupWithManager registers the controller on the leader.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, workers int) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("replicaset-scale").
		Watches(&appsv1.ReplicaSet{}, handler.EnqueueRequestsFromMapFunc(r.affected), builder.WithPredicates(scaled())).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(replicaSetFor), builder.WithPredicates(beforeOrAfter(r.mayGo))).
		Watches(&appsv1.Deployment{}, handler.EnqueueRequestsFromMapFunc(r.replicaSetsFor), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
}

// scaled passes ReplicaSet events that change a target in their workload.
func scaled() predicate.Funcs {
	type scale struct {
		replicas, pods, available int
		revision                  string
		annotated                 bool
	}
	of := func(object client.Object) (scale, bool) {
		set, ok := object.(*appsv1.ReplicaSet)
		if !ok {
			return scale{}, false
		}
		return scale{
			replicas: replicasetscale.Replicas(set.Spec.Replicas), pods: int(set.Status.Replicas), available: int(set.Status.AvailableReplicas),
			revision: set.Annotations[appsv1alpha1.DeploymentRevisionAnnotationKey], annotated: replicasetscale.HasAnnotations(set),
		}, true
	}
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, _ := of(e.ObjectOld)
		after, ok := of(e.ObjectNew)
		return ok && before != after
	}}
}

// affected returns requests for a ReplicaSet that has replicas or pods, and for the others of its Deployment that have
// replicas: the ReplicaSet of a new revision has none at first.
func (r *Reconciler) affected(ctx context.Context, object client.Object) (requests []reconcile.Request) {
	set, ok := object.(*appsv1.ReplicaSet)
	if !ok {
		return nil
	}
	if replicasetscale.Replicas(set.Spec.Replicas) > 0 || set.Status.Replicas > 0 || replicasetscale.HasAnnotations(set) {
		requests = []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(set)}}
	}
	controller := metav1.GetControllerOfNoCopy(set)
	if controller == nil || controller.Kind != "Deployment" {
		return requests
	}
	return append(requests, r.withReplicas(ctx, set.GetNamespace(), controller.UID)...)
}

// mayGo reports whether a pod's deletion has begun, or its ReplicaSet has pods too many: which of them go depends on their
// health, costs and labels. Each reconciliation reads all pods of the ReplicaSet, and other pods change its
// scale only through its status.
func (r *Reconciler) mayGo(object client.Object) bool {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return false
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	return replicasetscale.IsDeleting(pod) || replicasetscale.IsBegun(pod) ||
		owner != nil && r.has(types.NamespacedName{Namespace: pod.Namespace, Name: owner.Name})
}

// beforeOrAfter passes events of objects that match before or after the event.
func beforeOrAfter(match func(client.Object) bool) predicate.Funcs {
	funcs := predicate.NewPredicateFuncs(match)
	funcs.UpdateFunc = func(e event.UpdateEvent) bool { return match(e.ObjectOld) || match(e.ObjectNew) }
	return funcs
}

func replicaSetFor(_ context.Context, pod client.Object) []reconcile.Request {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "ReplicaSet" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: pod.GetNamespace(), Name: owner.Name}}}
}

// replicaSetsFor returns requests for the ReplicaSets of a Deployment that have replicas: a change of the
// Deployment may change their target.
func (r *Reconciler) replicaSetsFor(ctx context.Context, deployment client.Object) []reconcile.Request {
	return r.withReplicas(ctx, deployment.GetNamespace(), deployment.GetUID())
}

func (r *Reconciler) withReplicas(ctx context.Context, namespace string, deployment types.UID) (requests []reconcile.Request) {
	sets, err := r.cache.Sets(ctx, namespace, deployment)
	if err != nil {
		ctrllog.FromContext(ctx).Error(err, "Finding the ReplicaSets of a Deployment", "namespace", namespace, "uid", deployment)
	}
	for _, set := range sets {
		if replicasetscale.Replicas(set.Spec.Replicas) > 0 || replicasetscale.HasAnnotations(set) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(set)})
		}
	}
	return requests
}

// Reconcile takes the next steps of a scale-down, after the steps that other ReplicaSets under the same workload take.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	set := &appsv1.ReplicaSet{}
	if err := r.client.Get(ctx, req.NamespacedName, set); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	}
	end, err := r.workloads.take(ctx, string(workloadUID(set)))
	if err != nil {
		return reconcile.Result{}, err
	}
	defer end()
	return r.scale(ctx, req)
}

// workloadUID returns the UID of the controller that owns a ReplicaSet, or its own.
func workloadUID(set *appsv1.ReplicaSet) types.UID {
	if controller := metav1.GetControllerOfNoCopy(set); controller != nil {
		return controller.UID
	}
	return set.UID
}

func (r *Reconciler) scale(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
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
	own := r.stateFor(set)
	snapshot, behind, err := r.snapshot(ctx, set, own)
	if err != nil {
		return reconcile.Result{}, err
	}
	r.metrics.see(req.NamespacedName, snapshot.HasSurplus())
	decision, waits := replicasetscale.Decide(snapshot, own.waits, r.clock.Now())
	own.waits = waits
	if err := r.exchange(ctx, snapshot, own, decision.Exchange); err != nil {
		return reconcile.Result{}, err
	}
	begun, err := r.begin(ctx, snapshot, own, decision.Begin)
	if err != nil {
		return reconcile.Result{}, err
	}
	for _, pod := range decision.Unpin {
		if begun[pod.UID] {
			continue // it has begun again
		}
		if _, err := podwriter.PatchMetadata(ctx, r.client, pod, nil, replicasetscale.Unpin(pod)); err != nil {
			return reconcile.Result{}, err
		}
	}
	if err := r.annotate(ctx, set, decision.Annotations); err != nil {
		return reconcile.Result{}, err
	}
	forgone, again, err := r.deletes.Cancel(ctx, snapshot.Workload.Target(set), replicasetscale.Others(set, snapshot.Pods), snapshot.Pods)
	if err != nil {
		return reconcile.Result{}, err
	}
	if forgone { // another webhook denies the steps of a rollout, for instance: others would be off traffic in vain, too
		own.waits = own.waits.Paused(r.clock.Now())
	}
	if !snapshot.HasSurplus() && len(own.begun) == 0 && own.waits == (replicasetscale.Waits{}) {
		r.forget(req.NamespacedName)
	}
	return reconcile.Result{RequeueAfter: backoff.MinDelay(backoff.MinDelay(decision.Wake, again), behind)}, nil
}

// snapshot reads a ReplicaSet's pods and Deployment. behind is when to look again while pods and statuses of the workload differ, which no
// event of this ReplicaSet reports; 0 if they agree on its target.
func (r *Reconciler) snapshot(
	ctx context.Context, set *appsv1.ReplicaSet, own *state,
) (snapshot replicasetscale.Snapshot, behind time.Duration, err error) {
	pods, err := r.cache.Pods(ctx, set.Namespace, set.UID)
	if err != nil {
		return snapshot, 0, fmt.Errorf("ReplicaSet %s: %w", set.Name, err)
	}
	workload, err := r.cache.Workload(ctx, set)
	if err != nil {
		return snapshot, 0, fmt.Errorf("ReplicaSet %s: %w", set.Name, err)
	}
	r.forgetShown(own, pods)
	snapshot = replicasetscale.Snapshot{Set: set, Workload: workload, Pods: r.stored(pods), Attempts: own.attempts}
	if !snapshot.HasSurplus() {
		return snapshot, 0, nil
	}
	related, err := r.cache.Related(ctx, set)
	if err != nil {
		return snapshot, 0, fmt.Errorf("ReplicaSet %s: %w", set.Name, err)
	}
	target := workload.Target(set)
	snapshot.Workload.Pods = r.stored(related)
	if snapshot.Workload.Target(set) != target {
		behind = replicasetscale.TransferAfter
	}
	return snapshot, behind, nil
}

// stored returns pods, with the stored version of each pod that the cache still shows as of before its deletion began.
func (r *Reconciler) stored(pods []*corev1.Pod) []*corev1.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, pod := range pods {
		set := metav1.GetControllerOfNoCopy(pod)
		if set == nil {
			continue
		}
		own := r.state[types.NamespacedName{Namespace: pod.Namespace, Name: set.Name}]
		if own != nil && isBehind(pod, own.begun[pod.UID]) {
			pods[i] = own.begun[pod.UID]
		}
	}
	return pods
}

// isBehind reports whether a pod is older than its stored version, nil if that is not known.
func isBehind(pod, stored *corev1.Pod) bool {
	if stored == nil {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(pod.ResourceVersion, stored.ResourceVersion)
	return err == nil && order < 0
}

// forgetShown forgets stored versions: of pods that the cache shows by now, and of pods that are gone.
func (r *Reconciler) forgetShown(own *state, pods []*corev1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	behind := map[types.UID]*corev1.Pod{}
	for _, pod := range pods {
		if stored := own.begun[pod.UID]; isBehind(pod, stored) {
			behind[pod.UID] = stored
		}
	}
	own.begun = behind
}

// remember keeps the stored version of a pod whose deletion has begun; nil for one whose deletion was cancelled.
func (r *Reconciler) remember(own *state, uid types.UID, stored *corev1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if stored == nil {
		delete(own.begun, uid)
		return
	}
	own.begun[uid] = stored
}

// exchange cancels the deletions of waiting pods, so that those of others begin in the next rounds.
func (r *Reconciler) exchange(ctx context.Context, snapshot replicasetscale.Snapshot, own *state, pods []*corev1.Pod) error {
	if !snapshot.HasSurplus() {
		clear(own.attempts)
	}
	snapshot.Forget(own.attempts)
	for _, pod := range pods {
		cancelled, err := r.deletes.Exchange(ctx, pod)
		if err != nil {
			return err
		}
		if !cancelled {
			continue
		}
		own.attempts[pod.UID] = replicasetscale.AttemptOn(pod, r.clock.Now())
		r.remember(own, pod.UID, nil)
	}
	return nil
}

// begin begins the deletion of pods, in the order of their candidates, and returns them.
func (r *Reconciler) begin(ctx context.Context, snapshot replicasetscale.Snapshot, own *state, count int) (map[types.UID]bool, error) {
	if count == 0 {
		return nil, nil
	}
	now, begun := r.clock.Now(), map[types.UID]bool{}
	for _, pod := range snapshot.Candidates(now) {
		if len(begun) == count {
			return begun, nil
		}
		begun[pod.UID] = true
		labels, annotations := replicasetscale.Begin(pod, now)
		stored, err := podwriter.PatchMetadata(ctx, r.client, pod, labels, annotations)
		if err != nil {
			return begun, err
		}
		if stored != nil {
			r.remember(own, pod.UID, stored)
		}
	}
	return begun, nil
}

// annotate changes annotations of the ReplicaSet.
func (r *Reconciler) annotate(ctx context.Context, set *appsv1.ReplicaSet, annotations map[string]any) error {
	if len(annotations) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": set.UID, "annotations": annotations}})
	if err != nil {
		return fmt.Errorf("encoding the annotations of a ReplicaSet: %w", err)
	}
	stored := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Name: set.Name}}
	err = r.client.Patch(ctx, stored, client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // another ReplicaSet has its name
		return nil
	}
	if err != nil {
		return fmt.Errorf("patching ReplicaSet %s: %w", client.ObjectKeyFromObject(set), err)
	}
	_, dropped := annotations[appsv1alpha1.DesiredReplicasAnnotationKey]
	if controller := metav1.GetControllerOfNoCopy(set); dropped && (controller == nil || controller.Kind != "Deployment") {
		r.recorder.Eventf(set, nil, corev1.EventTypeWarning, EventScaleDownDropped, "Scale",
			"a request to lower it to %s, which an earlier version has kept, is not carried out: repeat it",
			set.Annotations[appsv1alpha1.DesiredReplicasAnnotationKey])
	}
	return nil
}

// stateFor returns the state of a ReplicaSet. One ReplicaSet is reconciled by one worker at a time.
func (r *Reconciler) stateFor(set *appsv1.ReplicaSet) *state {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := client.ObjectKeyFromObject(set)
	own, ok := r.state[key]
	if !ok || own.uid != set.UID {
		own = &state{uid: set.UID, begun: map[types.UID]*corev1.Pod{}, attempts: map[types.UID]replicasetscale.Attempt{}}
		r.state[key] = own
	}
	return own
}

func (r *Reconciler) has(key types.NamespacedName) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.state[key]
	return ok
}

func (r *Reconciler) forget(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.state, key)
}
