package resourceconsist

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/podops-dev/podops/pkg/resourceconsist/plan"
	"github.com/podops-dev/podops/pkg/runtime/backoff"
)

const (
	// firstPoll and lastPoll bound the time between two reads of a provider that has not
	// confirmed yet.
	firstPoll = 200 * time.Millisecond
	lastPoll  = 5 * time.Second
)

// Reconciler reconciles the employers of one adapter with its provider.
type Reconciler struct {
	binding   binding
	client    client.Client // cached
	apiReader client.Reader // the API server
	scheme    *runtime.Scheme
	recorder  events.EventRecorder
	provider  *provider
	histories histories
	measures  *measures
	clock     clock.PassiveClock

	selections selections
	kind       string // of employers
	listKind   schema.GroupVersionKind

	field  string        // of the index over the marks of pods
	resync time.Duration // how often the provider is read without an event
}

// Reconcile brings the provider, and the finalizers that depend on it, to the state that
// the employer requires, as far as this reconcile can.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	s, err := r.begin(ctx, req)
	if err != nil || s == nil {
		return reconcile.Result{}, err
	}
	return r.end(ctx, s, r.steps(ctx, s))
}

// steps runs the steps of a reconcile. A step that fails ends it only where the next step
// would be wrong without it.
func (r *Reconciler) steps(ctx context.Context, s *session) []error {
	if err := r.ensureClean(ctx, s); err != nil {
		s.fail(EventEnsureCleanFinalizerFailed, err)
		return []error{err}
	}
	r.gatherSelected(ctx, s)
	if err := r.gatherPods(ctx, s); err != nil {
		return []error{err}
	}
	// The expected finalizers are written before any slow call.
	expecting := r.protect(ctx, s, plan.Traffic{})
	s.fail(EventEnsureExpectedFailed, expecting)
	r.gather(ctx, s)
	if err := r.gatherMissing(ctx, s); err != nil {
		return []error{expecting, err}
	}
	if err := r.record(ctx, s); err != nil {
		s.fail(EventRecordStatusesFailed, err)
		return []error{expecting, err}
	}
	r.sync(ctx, s)
	protected := r.protect(ctx, s, s.traffic)
	s.fail(EventSyncEmployeesFailed, protected)
	return []error{expecting, protected, r.clean(ctx, s)}
}

// begin reads the employer. The session is nil when there is nothing to do: the employer
// was deleted, or belongs to another controller.
func (r *Reconciler) begin(ctx context.Context, req reconcile.Request) (*session, error) {
	if r.binding.follow && req.Namespace == "" {
		return nil, reconcile.TerminalError(fmt.Errorf("%s %s has no namespace: an employer whose pods follow the lifecycle needs a namespace", r.kind, req.Name))
	}
	s := &session{
		key: req.NamespacedName, target: target{employer: req.NamespacedName}, history: r.histories.history(req.NamespacedName),
		pods: map[string]*corev1.Pod{}, kept: map[string]bool{},
		conditionKey: lifecycleKey(r.kind, req.Namespace, req.Name), finalizer: GenerateLifecycleFinalizer(req.Name),
	}
	employer := r.binding.newEmployer()
	err := r.client.Get(ctx, req.NamespacedName, employer)
	if apierrors.IsNotFound(err) {
		// The cache may be behind the pods that name the employer.
		err = r.apiReader.Get(ctx, req.NamespacedName, employer)
	}
	if apierrors.IsNotFound(err) {
		return nil, r.release(ctx, s)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the employer: %w", err)
	}
	s.employer = copyObject(employer)
	s.target.instance = r.binding.instance(employer)
	s.actor = &actor{
		provider: r.provider, batch: r.binding.batch, target: s.target, employer: s.employer, history: s.history, now: r.clock.Now,
		attempts: map[attempt]bool{},
	}
	s.deleting = employer.GetDeletionTimestamp() != nil || !r.binding.manages(employer)
	if !s.deleting || r.owns(employer) {
		return s, nil
	}
	if owner := employer.GetAnnotations()[ControllerAnnotationKey]; owner != "" && owner != r.binding.name {
		r.histories.forget(s.key)
		return nil, nil // another controller cleans up
	}
	return nil, r.release(ctx, s)
}

// owns reports whether an employer may still hold something of this controller.
func (r *Reconciler) owns(employer client.Object) bool {
	owner := employer.GetAnnotations()[ControllerAnnotationKey]
	return controllerutil.ContainsFinalizer(employer, CleanFinalizer(employer.GetName())) &&
		(owner == r.binding.name || owner == "" && r.binding.manages(employer))
}

// release cleans up after an employer that was deleted: no provider call can confirm
// anything for it.
func (r *Reconciler) release(ctx context.Context, s *session) error {
	s.deleting = true
	r.gatherSelected(ctx, s)
	if err := r.gatherPods(ctx, s); err != nil {
		return err
	}
	if err := r.protect(ctx, s, plan.ClassifyTraffic(plan.Diff[IEmployee]{})); err != nil {
		return err
	}
	r.measures.show(s.key, s.history.shown, nil)
	r.histories.forget(s.key)
	r.selections.set(s.key, nil)
	return nil
}

// end reports the result, and returns when to reconcile again.
func (r *Reconciler) end(ctx context.Context, s *session, errs []error) (reconcile.Result, error) {
	errs = slices.DeleteFunc(errs, func(err error) bool {
		s.pending = s.pending || apierrors.IsConflict(err)
		return err == nil || apierrors.IsConflict(err)
	})
	if len(errs) == 0 && s.expectedEmployees != nil && s.currentEmployees != nil && s.expectedEmployers != nil && s.currentEmployers != nil {
		s.history.keep(s.actor.attempts)
	}
	r.report(ctx, s)
	for _, p := range s.problems {
		// Failed items are retried at their own time.
		if p.reason != EventSyncEmployeesFailed && p.reason != EventSyncEmployerFailed {
			errs = append(errs, p.err)
		}
	}
	after := r.after(s)
	err := errors.Join(errs...)
	if err != nil && !s.pending {
		return reconcile.Result{}, err
	}
	if err != nil {
		ctrllog.FromContext(ctx).Error(err, "Reconcile is incomplete, and finalizers wait for it", "retryAfter", after)
	}
	return reconcile.Result{RequeueAfter: after}, nil
}

// after returns when to reconcile again: when a failed item is due, when the provider may
// have confirmed a change, or at the next resync.
func (r *Reconciler) after(s *session) time.Duration {
	after := backoff.MinDelay(s.history.retryAfter(r.clock.Now()), r.resync)
	if len(s.kept) > 0 {
		after = backoff.MinDelay(after, keptPoll)
	}
	if !s.pending && s.actor.untried == 0 {
		s.history.polls, s.history.polled = 0, ""
		return max(after, r.provider.retryAfter(s.target))
	}
	after = backoff.MinDelay(after, cmp.Or(r.binding.requeue, backoff.Delay(firstPoll, s.history.poll(s.waiting), lastPoll)))
	return max(after, r.provider.retryAfter(s.target))
}
