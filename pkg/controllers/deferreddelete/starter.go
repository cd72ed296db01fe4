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
	// intentLife is how long a held delete is remembered while its owner seems not to
	// want the pod gone: the cache of owners may be behind the actor. An owner that
	// still wants it asks again.
	intentLife = 5 * time.Second

	// intentRetry is how soon the owner is looked at again.
	intentRetry = 100 * time.Millisecond

	// begunMemory is how long a request that began a lifecycle is remembered. A cache
	// that is further behind costs a request that changes nothing.
	begunMemory = time.Minute

	// maxIntents bounds what a flood of deletes can leave behind. Beyond it deletes
	// are still held, and begin when they are asked for again.
	maxIntents = 10000
)

// Starter starts the lifecycle of pods whose delete was held.
type Starter struct {
	client client.Client
	owners owners
	clock  clock.PassiveClock

	mu      sync.Mutex
	queue   workqueue.TypedRateLimitingInterface[reconcile.Request]
	intents map[types.NamespacedName]intent
	begun   map[types.UID]begun
}

// begun is the request that began a lifecycle. The actor asks again within milliseconds,
// when the cache may not show it yet.
type begun struct {
	resourceVersion string
	at              time.Time
}

type intent struct {
	uid   types.UID
	since time.Time
}

// NewStarter returns a Starter. c reads controlled pods and ReplicaSets from a cache.
func NewStarter(c client.Client, clk clock.PassiveClock) *Starter {
	return &Starter{
		client: c, owners: owners{reader: c}, clock: clk,
		intents: map[types.NamespacedName]intent{}, begun: map[types.UID]begun{},
	}
}

// Promise takes note of a held delete. It never blocks.
func (b *Starter) Promise(pod types.NamespacedName, uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.intents[pod]; !known && len(b.intents) >= maxIntents {
		return
	}
	b.intents[pod] = intent{uid: uid, since: b.clock.Now()}
	if b.queue != nil {
		b.queue.Add(reconcile.Request{NamespacedName: pod})
	}
}

// SetupWithManager registers the controller on every replica.
func (b *Starter) SetupWithManager(mgr ctrl.Manager, workers int) error {
	all := false
	return ctrl.NewControllerManagedBy(mgr).
		Named("deferred-delete-start").
		WatchesRawSource(source.Func(b.start)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, NeedLeaderElection: &all}).
		Complete(b)
}

func (b *Starter) start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue = queue
	for pod := range b.intents {
		queue.Add(reconcile.Request{NamespacedName: pod})
	}
	return nil
}

// Reconcile begins the lifecycle pod-delete if the owner has one pod too many for
// which nothing is under way.
func (b *Starter) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	held, ok := b.intent(req.NamespacedName)
	if !ok {
		return reconcile.Result{}, nil
	}
	pod := &corev1.Pod{}
	if err := b.client.Get(ctx, req.NamespacedName, pod); err != nil {
		b.drop(req.NamespacedName)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if pod.UID != held.uid || deferreddelete.IsPromised(pod.Labels) || deferreddelete.MayDelete(pod, deferreddelete.OwnerPresent, false) {
		b.drop(req.NamespacedName)
		return reconcile.Result{}, nil
	}
	if b.outdated(pod) {
		return reconcile.Result{RequeueAfter: intentRetry}, nil
	}
	promises, err := b.owners.promises(ctx, pod)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("looking at the owner of pod %s: %w", req.NamespacedName, err)
	}
	if !promises.Wanted(pod.UID) {
		if b.clock.Since(held.since) > intentLife {
			b.drop(req.NamespacedName)
			return reconcile.Result{}, nil
		}
		return reconcile.Result{RequeueAfter: intentRetry}, nil
	}
	if err := b.begin(ctx, pod); err != nil {
		return reconcile.Result{}, err
	}
	b.drop(req.NamespacedName)
	return reconcile.Result{}, nil
}

// begin asks for the operation, as any operation controller does.
func (b *Starter) begin(ctx context.Context, pod *corev1.Pod) error {
	now := b.clock.Now()
	stored, err := patchLabels(ctx, b.client, pod, map[string]string{
		appsv1alpha1.OperatingLabelPrefix + "/" + appsv1alpha1.PodDeleteID:     strconv.FormatInt(now.UnixNano(), 10),
		appsv1alpha1.OperationTypeLabelPrefix + "/" + appsv1alpha1.PodDeleteID: appsv1alpha1.DeleteOperationType,
	})
	if err != nil || stored == nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.begun, func(_ types.UID, earlier begun) bool { return now.Sub(earlier.at) > begunMemory })
	b.begun[pod.UID] = begun{resourceVersion: stored.ResourceVersion, at: now}
	return nil
}

// outdated: the pod, as the cache has it, is older than the request that began its
// lifecycle.
func (b *Starter) outdated(pod *corev1.Pod) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	last, ok := b.begun[pod.UID]
	if !ok || b.clock.Since(last.at) > begunMemory {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(pod.ResourceVersion, last.resourceVersion)
	return err == nil && order < 0
}

func (b *Starter) intent(pod types.NamespacedName) (intent, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	held, ok := b.intents[pod]
	return held, ok
}

func (b *Starter) drop(pod types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.intents, pod)
}

// patchLabels adds labels to this very pod; one of the same name that replaced it is
// left alone. It returns the pod as stored, nil when that pod is gone.
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
