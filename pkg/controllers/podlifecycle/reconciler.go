// Package podlifecycle advances the lifecycles of pods where no rule has to be evaluated:
// it opens the gate of a new pod, grants operate once traffic is off, marks pods
// available, and repairs changes that were made without admission. Package
// podtransitionrule grants the permits.
package podlifecycle

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	"github.com/podops-dev/podops/pkg/runtime/backoff"
	"github.com/podops-dev/podops/pkg/state/podfacts"
	"github.com/podops-dev/podops/pkg/state/podwriter"
)

// Config configures a Reconciler.
type Config struct {
	Reader    client.Reader // cached: controlled pods only, which are not modified, and Services
	APIReader client.Reader // the API server, for pods that have left the cache
	Writer    *podwriter.Writer
	Recorder  events.EventRecorder
	Facts     *podfacts.Gatherer
	Problems  *prometheus.CounterVec
	Metrics   *Metrics
	Options   lifecycle.Options
	Clock     clock.PassiveClock
}

// Reconciler advances one pod.
type Reconciler struct {
	Config

	lastProblems lastProblems
}

// New returns a Reconciler.
func New(config Config) *Reconciler {
	return &Reconciler{Config: config, lastProblems: newLastProblems()}
}

// SetupWithManager registers the controller. workers is the number of pods that are
// advanced at once.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, workers int) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, podfacts.EmployerField, podfacts.IndexByEmployer); err != nil {
		return fmt.Errorf("indexing pods by employer: %w", err)
	}
	warm := true
	return ctrl.NewControllerManagedBy(mgr).
		Named("podlifecycle").
		Watches(&corev1.Pod{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(watched())).
		Watches(&corev1.Service{}, handler.EnqueueRequestsFromMapFunc(r.waitingFor), builder.WithPredicates(podfacts.EmploymentEnds())).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, EnableWarmup: &warm}).
		Complete(r)
}

// Reconcile advances a pod as far as possible without evaluating a rule.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	pod, err := r.pod(ctx, req)
	if pod == nil {
		r.Metrics.forget(req.NamespacedName)
	}
	if err != nil || pod == nil || !r.Writer.CaughtUp(pod) {
		return reconcile.Result{}, err
	}
	r.Writer.Observe(pod)
	facts, factsErr := r.Facts.Gather(ctx, pod)
	change := lifecycle.Advance(facts, lifecycle.Permits{}, r.Options, r.Clock.Now())
	if deferreddelete.Finishes(pod) && change.OnlyOperates(appsv1alpha1.PodDeleteID) {
		return reconcile.Result{}, nil // controllers/deferreddelete deletes the pod instead
	}
	r.recordProblem(pod, cmp.Or(lifecycle.FindProblem(facts, change, r.Options), gatelessProblem(facts, r.Clock.Now())))
	pending, look := explainPending(pod, facts, &change, r.Clock.Now())
	r.Metrics.see(req.NamespacedName, facts, r.Clock.Now(), r.controllers(ctx, pod, facts))
	if err := r.Writer.Write(ctx, pod, change); err != nil {
		if isStale(err) {
			return reconcile.Result{RequeueAfter: retryStale}, nil
		}
		return reconcile.Result{}, fmt.Errorf("advancing lifecycle: %w", err)
	}
	if pending != nil {
		r.recordPending(pod, *pending)
	}
	r.Facts.Forgot(pod, change.Forget)
	if factsErr != nil {
		return reconcile.Result{}, fmt.Errorf("gathering facts: %w", factsErr)
	}
	return reconcile.Result{RequeueAfter: backoff.MinDelay(change.Wake, look)}, nil
}

// waitingFor returns requests for the pods that wait for a finalizer of a Service.
func (r *Reconciler) waitingFor(ctx context.Context, service client.Object) []reconcile.Request {
	requests, err := podfacts.Waiting(ctx, r.Reader, service)
	if err != nil {
		ctrllog.FromContext(ctx).Error(err, "Finding the pods that wait for a Service", "service", client.ObjectKeyFromObject(service))
	}
	return requests
}

// pod reads the pod of a request. A pod that is not in the cache is deleted, or was removed from
// PodOps: then the API server still has it, and its lifecycles must end. nil means that there is
// nothing to do.
func (r *Reconciler) pod(ctx context.Context, req reconcile.Request) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	err := r.Reader.Get(ctx, req.NamespacedName, pod)
	if apierrors.IsNotFound(err) {
		err = r.APIReader.Get(ctx, req.NamespacedName, pod)
	}
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return pod, nil
}

// retryStale is the delay after which a pod is reconciled again after a conflict. The watch
// usually delivers it earlier; this is for the case that it delivers nothing.
const retryStale = time.Second

// isStale reports whether the pod has changed or was deleted since the decision. Its watch event
// starts the next reconcile.
func isStale(err error) bool { return apierrors.IsConflict(err) || apierrors.IsNotFound(err) }

// watched drops deletions of pods that were terminating: only a pod that vanished without
// terminating may have been removed from PodOps.
func watched() predicate.Funcs {
	return predicate.Funcs{
		DeleteFunc: func(e event.DeleteEvent) bool { return e.Object.GetDeletionTimestamp() == nil },
	}
}
