package deferreddelete

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/deferreddelete"
)

const (
	// deferredTTL is for how long a delete is recorded while its owner has no surplus of
	// pods: the cache of owners may be behind the client. An owner that still has a surplus
	// repeats the delete.
	deferredTTL = 5 * time.Second

	// ownerRetry is how soon the owner is read again.
	ownerRetry = 100 * time.Millisecond

	// startedTTL is for how long a request that began a lifecycle is recorded. A cache
	// that is further behind costs a request that changes nothing.
	startedTTL = time.Minute

	// maxDeferred bounds the memory of a flood of deletes. Beyond it deletes are still
	// rejected with 429, and begin when they are repeated.
	maxDeferred = 10000
)

// Starter starts the lifecycle of pods whose delete was deferred.
type Starter struct {
	client client.Client
	owners owners
	clock  clock.PassiveClock

	mu       sync.Mutex
	queue    workqueue.TypedRateLimitingInterface[reconcile.Request]
	deferred map[types.NamespacedName]deferral
	started  map[types.UID]started
}

// started is the request that began a lifecycle. The client repeats the delete within
// milliseconds, when the cache may not show that request yet.
type started struct {
	resourceVersion string
	at              time.Time
}

type deferral struct {
	uid   types.UID
	since time.Time
}

// NewStarter returns a Starter. c reads controlled pods and ReplicaSets from a cache.
func NewStarter(c client.Client, clk clock.PassiveClock) *Starter {
	return &Starter{
		client: c, owners: owners{reader: c}, clock: clk,
		deferred: map[types.NamespacedName]deferral{}, started: map[types.UID]started{},
	}
}

// Defer records a deferred delete. It never blocks.
func (s *Starter) Defer(pod types.NamespacedName, uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.deferred[pod]; !known && len(s.deferred) >= maxDeferred {
		return
	}
	s.deferred[pod] = deferral{uid: uid, since: s.clock.Now()}
	if s.queue != nil {
		s.queue.Add(reconcile.Request{NamespacedName: pod})
	}
}

// SetupWithManager registers the controller on every replica.
func (s *Starter) SetupWithManager(mgr ctrl.Manager, workers int) error {
	all := false
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
	for pod := range s.deferred {
		queue.Add(reconcile.Request{NamespacedName: pod})
	}
	return nil
}

// Reconcile begins the lifecycle pod-delete if the owner has a surplus of pods beyond the
// deletes in progress.
func (s *Starter) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	recorded, ok := s.recorded(req.NamespacedName)
	if !ok {
		return reconcile.Result{}, nil
	}
	pod := &corev1.Pod{}
	if err := s.client.Get(ctx, req.NamespacedName, pod); err != nil {
		s.drop(req.NamespacedName)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if pod.UID != recorded.uid || deferreddelete.IsDeferred(pod.Labels) || deferreddelete.MayDelete(pod, deferreddelete.OwnerPresent, false) {
		s.drop(req.NamespacedName)
		return reconcile.Result{}, nil
	}
	if s.outdated(pod) {
		return reconcile.Result{RequeueAfter: ownerRetry}, nil
	}
	plan, err := s.owners.plan(ctx, pod)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("comparing the deletes of the owner of pod %s: %w", req.NamespacedName, err)
	}
	if !plan.MayBegin(pod.UID) {
		if s.clock.Since(recorded.since) > deferredTTL {
			s.drop(req.NamespacedName)
			return reconcile.Result{}, nil
		}
		return reconcile.Result{RequeueAfter: ownerRetry}, nil
	}
	if err := s.begin(ctx, pod); err != nil {
		return reconcile.Result{}, err
	}
	s.drop(req.NamespacedName)
	return reconcile.Result{}, nil
}

// begin requests the operation, as any operation controller does.
func (s *Starter) begin(ctx context.Context, pod *corev1.Pod) error {
	now := s.clock.Now()
	stored, err := patchLabels(ctx, s.client, pod, map[string]string{
		appsv1alpha1.OperatingLabelPrefix + "/" + appsv1alpha1.PodDeleteID:     strconv.FormatInt(now.UnixNano(), 10),
		appsv1alpha1.OperationTypeLabelPrefix + "/" + appsv1alpha1.PodDeleteID: appsv1alpha1.DeleteOperationType,
	})
	if err != nil || stored == nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.started, func(_ types.UID, earlier started) bool { return now.Sub(earlier.at) > startedTTL })
	s.started[pod.UID] = started{resourceVersion: stored.ResourceVersion, at: now}
	return nil
}

// outdated reports whether the pod in the cache is older than the request that began its
// lifecycle.
func (s *Starter) outdated(pod *corev1.Pod) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, ok := s.started[pod.UID]
	if !ok || s.clock.Since(last.at) > startedTTL {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(pod.ResourceVersion, last.resourceVersion)
	return err == nil && order < 0
}

func (s *Starter) recorded(pod types.NamespacedName) (deferral, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	recorded, ok := s.deferred[pod]
	return recorded, ok
}

func (s *Starter) drop(pod types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.deferred, pod)
}

// patchLabels adds labels to this very pod, not to another pod of its name. It returns the pod as
// stored, nil when the pod no longer exists.
func patchLabels(ctx context.Context, c client.Client, pod *corev1.Pod, labels map[string]string) (*corev1.Pod, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID, "labels": labels}})
	if err != nil {
		return nil, fmt.Errorf("encoding labels: %w", err)
	}
	stored := &corev1.Pod{}
	stored.Namespace, stored.Name = pod.Namespace, pod.Name
	err = c.Patch(ctx, stored, client.RawPatch(types.MergePatchType, patch))
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("patching labels of pod %s: %w", client.ObjectKeyFromObject(pod), err)
	}
	return stored, nil
}
