package deferreddelete

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/core/podstate"
	"github.com/podops-dev/podops/pkg/runtime/fairshare"
	"github.com/podops-dev/podops/pkg/runtime/observation"
	"github.com/podops-dev/podops/pkg/state/podwriter"
	"github.com/podops-dev/podops/pkg/state/replicasetpods"
)

const (
	// deferredTTL is for how long a delete is recorded while its owner has no surplus of
	// pods: the cache of owners may be behind the client. An owner that still has a surplus
	// repeats the delete.
	deferredTTL = 5 * time.Second

	// ownerRetry is the delay after which the owner is read again.
	ownerRetry = 100 * time.Millisecond

	// startedTTL is for how long a request that began a lifecycle is recorded: the client repeats
	// the delete within milliseconds, when the cache may not show that request yet. A cache that is
	// further behind costs a request that changes nothing.
	startedTTL = time.Minute

	// deferredBytes bounds the memory for a flood of deletes, about 10,000. Beyond it the namespace
	// with the most of them loses its oldest: these were rejected with 429, and begin when they are
	// repeated.
	deferredBytes = 6 << 20

	// removedAfter is the time within which the API server removes a pod whose removal it has admitted. A
	// pod that is there after it was kept by another webhook, a policy or its PodDisruptionBudget.
	removedAfter = 3 * time.Second

	// endedBytes bounds the memory of requests that have ended. A pod that is not in it goes back into service
	// when its request lapses.
	endedBytes = 1 << 20

	// deferralSize is the size of a deferral with its key, besides the texts in them.
	deferralSize = 160
)

// Starter starts the lifecycle of pods whose delete was deferred.
type Starter struct {
	undoer

	owners owners
	clock  clock.PassiveClock

	// repeats has when requests were last repeated.
	repeats *observation.Tracker

	// started has the pods as stored by the requests that began their lifecycles.
	started *podwriter.Versions

	// ended has the pods whose removal was admitted, or whose clients went away.
	ended *fairshare.Cache[types.NamespacedName, ending]

	// elected is closed once this replica leads; nil if it always does.
	elected <-chan struct{}

	mu       sync.Mutex
	reserved map[types.UID]time.Time // pods of DaemonSets and custom owners whose deletes begin
	queue    workqueue.TypedRateLimitingInterface[reconcile.Request]
	deferred *fairshare.Cache[types.NamespacedName, deferral]
}

// ending is a request that has ended, and why its pod goes back into service.
type ending struct {
	uid   types.UID
	at    time.Time
	lapse deferreddelete.Lapse
}

type deferral struct {
	uid     types.UID
	request deferreddelete.Request
	since   time.Time
}

// NewStarter returns a Starter. c reads controlled pods and ReplicaSets from a cache. repeats is that of the PendingDeletes.
func NewStarter(c client.Client, recorder events.EventRecorder, metrics *Metrics, repeats *observation.Tracker, clk clock.PassiveClock) *Starter {
	return &Starter{
		repeats: repeats,
		undoer:  undoer{client: c, recorder: recorder, metrics: metrics}, owners: owners{reader: replicasetpods.Reader{Reader: c}}, clock: clk,
		reserved: map[types.UID]time.Time{},
		ended:    fairshare.NewCache[types.NamespacedName, ending](endedBytes),
		deferred: fairshare.NewCache[types.NamespacedName, deferral](deferredBytes), started: podwriter.NewVersions(startedTTL),
	}
}

// Defer records a deferred delete. Of two requests for one pod, the stronger is kept. It never
// blocks.
func (s *Starter) Defer(pod types.NamespacedName, uid types.UID, request deferreddelete.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if earlier, known := s.deferred.Get(pod); known && earlier.uid == uid && earlier.request.Stronger(request) {
		request = earlier.request
	}
	bytes := deferralSize + len(pod.Namespace) + len(pod.Name) + len(uid) + len(request.User)
	for _, group := range request.Groups {
		bytes += len(group)
	}
	kept := s.deferred.Add(pod.Namespace, pod, deferral{uid: uid, request: request, since: s.clock.Now()}, int64(bytes))
	if kept && s.queue != nil {
		s.queue.Add(reconcile.Request{NamespacedName: pod})
	}
}

// Ended records that the removal of a pod was admitted, or that its client went away. It never blocks.
func (s *Starter) Ended(pod types.NamespacedName, uid types.UID, lapse deferreddelete.Lapse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	bytes := deferralSize + len(pod.Namespace) + len(pod.Name) + len(uid)
	end := ending{uid: uid, at: s.clock.Now(), lapse: lapse}
	if s.ended.Add(pod.Namespace, pod, end, int64(bytes)) && s.queue != nil {
		s.queue.AddAfter(reconcile.Request{NamespacedName: pod}, end.wait())
	}
}

// wait returns the time after which the pod goes back into service.
func (e ending) wait() time.Duration {
	if e.lapse == deferreddelete.LapseKept {
		return removedAfter
	}
	return 0
}

// SetupWithManager registers the controller on every replica, and on the leader one more, which takes requests of other replicas.
func (s *Starter) SetupWithManager(mgr ctrl.Manager, workers int) error {
	all := false
	s.elected = mgr.Elected()
	err := ctrl.NewControllerManagedBy(mgr).
		Named("deferred-delete-take").
		Watches(&corev1.Pod{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicate.NewPredicateFuncs(isHandedOver))).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(reconcile.Func(s.takeOver))
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("deferred-delete-start").
		WatchesRawSource(source.Func(s.start)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, NeedLeaderElection: &all}).
		Complete(s)
}

func (s *Starter) start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = queue
	for _, pod := range s.deferred.Keys() {
		queue.Add(reconcile.Request{NamespacedName: pod})
	}
	return nil
}

// Reconcile begins the lifecycle pod-delete, or adds the request to the lifecycle in progress.
// For the controller of a ReplicaSet, which deletes another pod each time, it begins only if pods without
// the control label are among those of the ReplicaSet, and it has a surplus beyond the deletes in progress. For that of a DaemonSet
// it begins while its maxUnavailable permits it, and for that of a custom owner one pod after the other: the leader begins
// them, since replicas do not see at once what others begin.
// Package replicasetscale begins the deletes of other ReplicaSets.
func (s *Starter) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	left, err := s.undoEnded(ctx, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	recorded, ok := s.deferred.Get(req.NamespacedName)
	if !ok {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	pod := &corev1.Pod{}
	if err := s.client.Get(ctx, req.NamespacedName, pod); err != nil {
		s.deferred.Remove(req.NamespacedName)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	_, exempt := deferreddelete.Exempt(pod)
	if pod.UID != recorded.uid || exempt || deferreddelete.Operable(pod.Labels) {
		s.deferred.Remove(req.NamespacedName)
		return reconcile.Result{}, nil
	}
	if s.started.HasLater(pod, s.clock.Now()) {
		return reconcile.Result{RequeueAfter: ownerRetry}, nil
	}
	may, later, err := s.mayBegin(ctx, pod, recorded.request)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("comparing the deletes of the owner of pod %s: %w", req.NamespacedName, err)
	}
	if later && s.clock.Since(recorded.since) <= deferredTTL {
		return reconcile.Result{RequeueAfter: ownerRetry}, nil
	}
	settled, err := s.settle(ctx, pod, recorded.request, may)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !settled && s.clock.Since(recorded.since) <= deferredTTL {
		return reconcile.Result{RequeueAfter: ownerRetry}, nil
	}
	s.deferred.Remove(req.NamespacedName)
	return reconcile.Result{}, nil
}

// undoEnded ends the lifecycle of a pod whose removal was admitted and did not follow, or whose client went away: the pod goes back
// into service. It returns how soon that is due. A pod that has changed may be terminating, or permitted just now.
func (s *Starter) undoEnded(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	ended, ok := s.ended.Get(key)
	if !ok {
		return 0, nil
	}
	if left := ended.wait() - s.clock.Since(ended.at); left > 0 {
		return left, nil
	}
	pod := &corev1.Pod{}
	if err := s.client.Get(ctx, key, pod); err != nil {
		s.ended.Remove(key)
		return 0, client.IgnoreNotFound(err)
	}
	if ended.lapse == deferreddelete.LapseAbandoned && s.begins(pod) {
		return ownerRetry, nil
	}
	if !ended.undoes(pod) {
		s.ended.Remove(key)
		return 0, nil
	}
	undone, err := s.undo(ctx, pod, ended.lapse, podwriter.PatchUnchanged)
	if err != nil || !undone {
		return ownerRetry, err
	}
	s.ended.Remove(key)
	return 0, nil
}

// begins reports whether a lifecycle begins that the cache does not show yet, of a request that is to be carried on.
func (s *Starter) begins(pod *corev1.Pod) bool {
	if deferral, ok := s.deferred.Get(client.ObjectKeyFromObject(pod)); ok && deferral.uid == pod.UID {
		s.deferred.Remove(client.ObjectKeyFromObject(pod)) // it has not begun
	}
	return s.started.HasLater(pod, s.clock.Now())
}

// undoes reports whether the request that has ended is the one for which a pod is to go, and no later one is.
func (e ending) undoes(pod *corev1.Pod) bool {
	record, ok := deferreddelete.Pending(pod)
	if !ok || pod.UID != e.uid || pod.DeletionTimestamp != nil || !deferreddelete.Heard(pod) {
		return false
	}
	if e.lapse == deferreddelete.LapseKept {
		return deferreddelete.Operable(pod.Labels)
	}
	return !deferreddelete.LastSeen(record).After(e.at)
}

// mayBegin reports whether a request begins a lifecycle or joins it, or may do so later, once the cache shows
// what its client has seen. Only the controllers of ReplicaSets choose another pod when they repeat a delete.
func (s *Starter) mayBegin(ctx context.Context, pod *corev1.Pod, request deferreddelete.Request) (may, later bool, err error) {
	switch {
	case deferreddelete.IsDeferred(pod.Labels):
		return true, false, nil
	case request.Actor == deferreddelete.ActorController:
		may, err := s.mayFollow(ctx, pod)
		return may, false, err
	case request.Actor != deferreddelete.ActorOwner:
		return true, false, nil
	case deferreddelete.OfDaemonSet(pod):
		may, err := s.mayReplace(ctx, pod)
		return may, false, err
	case !deferreddelete.OfReplicaSet(pod):
		return true, false, nil
	}
	plan, err := s.owners.plan(ctx, pod)
	if err != nil || !plan.Mixed {
		return false, false, err
	}
	may = plan.MayBegin(pod.UID)
	return may, !may, nil
}

// mayReplace reports whether the delete of a DaemonSet's pod begins, and undoes that of the pod in whose place it begins.
func (s *Starter) mayReplace(ctx context.Context, pod *corev1.Pod) (bool, error) {
	controller, set := metav1.GetControllerOf(pod), &appsv1.DaemonSet{}
	err := s.client.Get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: controller.Name}, set)
	if err != nil {
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}
	pods, err := s.owners.reader.Pods(ctx, pod.Namespace, controller.UID)
	if err != nil {
		return false, err
	}
	return s.exchange(ctx, pod, pods, func(owned deferreddelete.OwnedPods) (bool, *corev1.Pod) {
		reserved := owned.Begun
		owned.Begun = func(other *corev1.Pod) bool { return reserved(other) || deferreddelete.IsDeferred(other.Labels) }
		return deferreddelete.MayReplace(set, pod, owned)
	})
}

// mayFollow does the same for the pod of a custom owner.
func (s *Starter) mayFollow(ctx context.Context, pod *corev1.Pod) (bool, error) {
	controller := metav1.GetControllerOfNoCopy(pod)
	if controller == nil {
		return true, nil
	}
	pods, err := s.owners.reader.Pods(ctx, pod.Namespace, controller.UID)
	if err != nil {
		return false, err
	}
	return s.exchange(ctx, pod, pods, func(owned deferreddelete.OwnedPods) (bool, *corev1.Pod) { return deferreddelete.MayFollow(pod, owned) })
}

// decide returns whether the delete of a pod begins, and the pod whose delete ends instead.
type decide func(deferreddelete.OwnedPods) (may bool, instead *corev1.Pod)

// exchange decides whether the delete of a pod begins, and undoes that of the pod in whose place it begins.
func (s *Starter) exchange(ctx context.Context, pod *corev1.Pod, owned []*corev1.Pod, decide decide) (bool, error) {
	may, instead := s.reserve(pod, owned, decide)
	if !may || instead == nil || !s.leads() {
		return may, nil
	}
	undone, err := s.undo(ctx, instead, deferreddelete.LapseExchanged, podwriter.PatchUnchanged)
	if !undone { // it may have been permitted
		s.release(pod.UID)
	}
	return undone, err
}

// reserve decides whether a pod begins to go, and remembers it: the cache may not show it at the next request.
func (s *Starter) reserve(pod *corev1.Pod, owned []*corev1.Pod, decide decide) (may bool, instead *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	maps.DeleteFunc(s.reserved, func(_ types.UID, at time.Time) bool { return now.Sub(at) > deferredTTL })
	may, instead = decide(deferreddelete.OwnedPods{
		Pods:     owned,
		Begun:    func(other *corev1.Pod) bool { _, reserved := s.reserved[other.UID]; return reserved },
		Withheld: func(other *corev1.Pod) bool { return len(podstate.WithheldBy(other.Annotations)) > 0 },
		Now:      now,
	})
	if may {
		s.reserved[pod.UID] = now
	}
	return may, instead
}

// release forgets a pod that does not begin to go.
func (s *Starter) release(pod types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.reserved, pod)
}

// begin requests the operation, as any operation controller does, and records the request. If the
// operation is in progress, it only records the request. It returns false if the pod has changed meanwhile.
func (s *Starter) begin(ctx context.Context, pod *corev1.Pod, request deferreddelete.Request) (bool, error) {
	now := s.clock.Now()
	var stored *corev1.Pod
	var err error
	if deferreddelete.IsDeferred(pod.Labels) {
		record, changed := request.Join(pod, now)
		_, ended := s.ended.Get(client.ObjectKeyFromObject(pod)) // that of a request before this one
		if changed && s.leads() && !ended && deferreddelete.Remembers(pod, record) {
			s.repeats.Restart(pod.UID, aspectSeen)
			return true, nil
		}
		if !changed {
			return true, nil
		}
		stored, err = patchRecord(ctx, s.client, pod, nil, record)
	} else {
		stored, err = beginPending(ctx, s.client, pod, request, now)
	}
	if err != nil || stored == nil {
		return false, err
	}
	s.started.Note(stored, now)
	return true, nil
}

// beginPending begins the lifecycle pod-delete of a pod, and records the request. It returns the pod
// as stored, nil when the pod has changed or no longer exists.
func beginPending(ctx context.Context, c client.Client, pod *corev1.Pod, request deferreddelete.Request, now time.Time) (*corev1.Pod, error) {
	since := strconv.FormatInt(now.UnixNano(), 10)
	return patchRecord(ctx, c, pod, map[string]any{
		appsv1alpha1.OperatingLabelPrefix + "/" + appsv1alpha1.PodDeleteID:     since,
		appsv1alpha1.OperationTypeLabelPrefix + "/" + appsv1alpha1.PodDeleteID: appsv1alpha1.DeleteOperationType,
	}, request.Begin(pod, since))
}

// patchRecord adds labels to the pod, and writes the record of its pending delete, unless the pod has changed: another replica may have
// begun the lifecycle, and a record counts for the lifecycle only that it names. It returns the pod as stored, nil when the pod has
// changed or no longer exists.
func patchRecord(
	ctx context.Context, c client.Client, pod *corev1.Pod, labels map[string]any, record appsv1alpha1.PendingDelete,
) (*corev1.Pod, error) {
	annotations := map[string]any{}
	if earlier, _ := deferreddelete.Pending(pod); len(labels) > 0 || !deferreddelete.SameRequest(earlier, record) {
		maps.Copy(annotations, deferreddelete.Verdicts[any](pod.Annotations)) // the client waits for the verdicts on its request
	}
	annotations[appsv1alpha1.PendingDeleteAnnotationKey] = deferreddelete.Encode(record)
	stored, err := podwriter.PatchUnchanged(ctx, c, pod, labels, annotations)
	if err != nil {
		return nil, fmt.Errorf("recording a pending delete: %w", err)
	}
	return stored, nil
}
