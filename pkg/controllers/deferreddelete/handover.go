package deferreddelete

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/state/podwriter"
)

// handedOverTTL is for how long the leader may begin a request that another replica has recorded: its client repeats it later.
const handedOverTTL = 15 * time.Second

// isHandedOver reports whether a pod has a request of another replica.
func isHandedOver(object client.Object) bool {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return false
	}
	_, _, ok = deferreddelete.HandedOver(pod)
	return ok
}

// leads reports whether this replica is the leader.
func (s *Starter) leads() bool {
	if s.elected == nil {
		return true
	}
	select {
	case <-s.elected:
		return true
	default:
		return false
	}
}

// settle begins a request, or hands it over to the leader, or drops it. It returns false if the pod has changed meanwhile.
func (s *Starter) settle(ctx context.Context, pod *corev1.Pod, request deferreddelete.Request, may bool) (settled bool, err error) {
	switch {
	case may && (s.leads() || !isCounted(pod, request)):
		return s.begin(ctx, pod, request)
	case may && !isHandedOver(pod):
		record := request.HandOver(pod, s.clock.Now())
		return s.record(ctx, pod, deferreddelete.Encode(record))
	case !may && isHandedOver(pod) && s.leads():
		return s.record(ctx, pod, nil)
	default:
		return true, nil
	}
}

// record writes the record of a request that has not begun, or removes it; it returns false if the pod has changed meanwhile.
func (s *Starter) record(ctx context.Context, pod *corev1.Pod, value any) (written bool, err error) {
	stored, err := podwriter.PatchUnchanged(ctx, s.client, pod, nil, map[string]any{appsv1alpha1.PendingDeleteAnnotationKey: value})
	if stored != nil {
		s.started.Note(stored, s.clock.Now())
	}
	return stored != nil, err
}

// isCounted reports whether a request begins only if few other pods of its owner go.
func isCounted(pod *corev1.Pod, request deferreddelete.Request) bool {
	return !deferreddelete.IsDeferred(pod.Labels) &&
		(request.Actor == deferreddelete.ActorController || request.Actor == deferreddelete.ActorOwner && deferreddelete.OfDaemonSet(pod))
}

// takeOver defers the request that another replica has recorded, or drops one that is too old.
func (s *Starter) takeOver(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	pod := &corev1.Pod{}
	if err := s.client.Get(ctx, req.NamespacedName, pod); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	request, at, ok := deferreddelete.HandedOver(pod)
	if !ok || pod.DeletionTimestamp != nil || s.started.HasLater(pod, s.clock.Now()) {
		return reconcile.Result{}, nil
	}
	left := handedOverTTL - s.clock.Since(at)
	if left <= 0 {
		_, err := s.record(ctx, pod, nil)
		return reconcile.Result{}, err
	}
	s.Defer(req.NamespacedName, pod.UID, request)
	return reconcile.Result{RequeueAfter: left}, nil
}
