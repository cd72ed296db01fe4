package resourceconsist

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Option configures how a controller calls its provider.
type Option func(*settings)

type settings struct {
	qps       float32
	burst     int
	timeout   time.Duration
	tries     int
	resync    time.Duration
	admission *Admission
	registry  prometheus.Registerer
	clock     clock.PassiveClock
}

func defaults() settings {
	return settings{qps: 100, burst: 200, timeout: 30 * time.Second, tries: 4, resync: 30 * time.Second, registry: metrics.Registry, clock: clock.RealClock{}}
}

// WithRateLimit bounds the calls of the adapter: qps per second, burst at once. Default:
// 100 and 200. A reconcile that changes nothing makes five.
func WithRateLimit(qps float32, burst int) Option {
	return func(s *settings) { s.qps, s.burst = qps, burst }
}

// WithTimeout is the deadline of each adapter call. Default: 30 s.
func WithTimeout(timeout time.Duration) Option { return func(s *settings) { s.timeout = timeout } }

// WithResync sets how often the provider of an employer is read without an event: another
// client may have changed it, or it may have lost its state. Default: 30 s.
func WithResync(interval time.Duration) Option { return func(s *settings) { s.resync = interval } }

// WithAdmission makes admission add the adapter's finalizers to the expected finalizers of
// new pods. It is for adapters inside of the manager, which serves the webhook; for a program of its
// own a TrafficAdapter has the same effect.
func WithAdmission(admission *Admission) Option { return func(s *settings) { s.admission = admission } }

// WithRegistry sets the registry of the metrics. Default: the registry of the manager.
func WithRegistry(registry prometheus.Registerer) Option {
	return func(s *settings) { s.registry = registry }
}

// AddToMgr registers a controller for an adapter. It fails on an adapter or on options that
// could never work; it does not call the provider before the manager starts.
func AddToMgr(mgr manager.Manager, adapter ReconcileAdapter, options ...Option) error {
	s := defaults()
	for _, option := range options {
		option(&s)
	}
	r, err := newReconciler(mgr.GetClient(), mgr.GetAPIReader(), mgr.GetScheme(), adapter, s)
	if err != nil {
		return err
	}
	r.recorder = mgr.GetEventRecorder(r.binding.name)
	if err := r.setup(mgr); err != nil {
		return fmt.Errorf("setting up controller %s: %w", r.binding.name, err)
	}
	if s.admission != nil && r.binding.follow {
		s.admission.add(r)
	}
	return nil
}

func newReconciler(cached client.Client, apiReader client.Reader, scheme *runtime.Scheme, adapter ReconcileAdapter, s settings) (*Reconciler, error) {
	b, err := bind(adapter)
	if err != nil {
		return nil, err
	}
	if s.qps <= 0 || s.burst <= 0 || s.timeout <= 0 || s.resync <= 0 || s.tries <= 0 {
		return nil, fmt.Errorf("controller %s: rate, burst, timeout, resync and tries must be above 0, and are %g, %d, %v, %v and %d",
			b.name, s.qps, s.burst, s.timeout, s.resync, s.tries)
	}
	gvk, err := apiutil.GVKForObject(b.newEmployer(), scheme)
	if err != nil {
		return nil, fmt.Errorf("controller %s: the kind of NewEmployer is not in the scheme: %w", b.name, err)
	}
	listKind := gvk.GroupVersion().WithKind(gvk.Kind + "List")
	if _, err := newList(scheme, listKind); err != nil {
		return nil, fmt.Errorf("controller %s: %s must be in the scheme: %w", b.name, listKind, err)
	}
	measured, err := newMeasures(b.name, s.registry)
	if err != nil {
		return nil, err
	}
	return &Reconciler{
		binding: b, client: cached, apiReader: apiReader, scheme: scheme, clock: s.clock, measures: measured,
		provider: newProvider(s),
		kind:     gvk.Kind, listKind: listKind, field: "resourceconsist/" + b.name, resync: s.resync,
	}, nil
}

func newList(scheme *runtime.Scheme, kind schema.GroupVersionKind) (client.ObjectList, error) {
	object, err := scheme.New(kind)
	if err != nil {
		return nil, fmt.Errorf("making a list: %w", err)
	}
	list, ok := object.(client.ObjectList)
	if !ok {
		return nil, fmt.Errorf("%T is not a list", object)
	}
	return list, nil
}

func (r *Reconciler) setup(mgr manager.Manager) error {
	if r.binding.follow {
		// The index is registered before the cache starts, so no context ends it.
		if err := mgr.GetFieldIndexer().IndexField(context.Background(), &corev1.Pod{}, r.field, indexByMarks); err != nil {
			return fmt.Errorf("indexing pods by employer: %w", err)
		}
	}
	employers, employees := r.binding.employerHandler, r.binding.employeeHandler
	if employers == nil {
		employers = &handler.EnqueueRequestForObject{}
	}
	if employees == nil {
		employees = r.employeeEvents()
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named(r.binding.name).
		Watches(r.binding.newEmployer(), employers, builder.WithPredicates(r.employerEvents())).
		Watches(r.binding.newEmployee(), employees, builder.WithPredicates(r.binding.employeeFilter)).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.binding.workers, RateLimiter: r.binding.rateLimiter}).
		Complete(r)
}

// indexByMarks indexes pods by the employers and the protection finalizers that they name.
func indexByMarks(object client.Object) []string {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return nil
	}
	return readMarks(pod)
}
