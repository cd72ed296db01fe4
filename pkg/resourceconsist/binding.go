package resourceconsist

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

const (
	defaultWorkers = 5

	// firstRetry is the time after which a failed employer is retried, doubled with each
	// failure up to lastRetry.
	firstRetry = 200 * time.Millisecond
	lastRetry  = time.Minute
)

// binding is an adapter with all optional interfaces resolved: its type is not inspected
// after registration.
type binding struct {
	adapter ReconcileAdapter
	name    string

	workers     int
	batch       int // items of a call
	rateLimiter workqueue.TypedRateLimiter[reconcile.Request]

	newEmployer, newEmployee         func() client.Object
	employerHandler, employeeHandler handler.EventHandler // nil: the default
	employerFilter, employeeFilter   predicate.Funcs

	follow, recordEmployees, recordExpected bool

	// recordStatuses and recordErrors are nil when the adapter records nothing.
	recordStatuses func(context.Context, client.Object, CUDEmployerResults, CUDEmployeeResults) error
	recordErrors   func(context.Context, client.Object, error) error
	requeue        time.Duration // zero: growing

	// instance names the instance of the provider for an employer.
	instance func(client.Object) string

	// employersFor returns the employers of a new pod; nil: Services by selector.
	employersFor func(context.Context, client.Object, client.Client) ([]client.Object, error)
}

// bind resolves the optional interfaces of an adapter. It fails on an adapter that could
// never work, and names the method to change.
func bind(adapter ReconcileAdapter) (binding, error) {
	if adapter == nil {
		return binding{}, errors.New("binding an adapter: it is nil")
	}
	b := binding{
		adapter: adapter, name: adapter.GetControllerName(),
		workers:     defaultWorkers,
		batch:       defaultBatch,
		rateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		newEmployer: func() client.Object { return &corev1.Service{} }, newEmployee: func() client.Object { return &corev1.Pod{} },
		employerFilter: predicate.NewPredicateFuncs(isControlled),
		follow:         true,
	}
	if b.name == "" {
		return binding{}, errors.New("binding an adapter: GetControllerName returns an empty name")
	}
	b.bindQueue(adapter)
	if err := b.bindWatches(adapter); err != nil {
		return binding{}, fmt.Errorf("binding adapter %s: %w", b.name, err)
	}
	b.bindLifecycle(adapter)
	b.bindRecords(adapter)
	if _, pods := b.newEmployee().(*corev1.Pod); b.follow && !pods {
		return binding{}, fmt.Errorf("binding adapter %s: FollowPodOpsLifeCycle needs employees that are pods, and NewEmployee returns %T", b.name, b.newEmployee())
	}
	return b, nil
}

func isControlled(object client.Object) bool {
	return appsv1alpha1.IsControlled(object.GetLabels())
}

func (b *binding) bindQueue(adapter ReconcileAdapter) {
	workers := 0
	if o, ok := adapter.(MaxConcurrentOptions); ok {
		workers = o.GetMaxConcurrent()
	}
	if o, ok := adapter.(ReconcileOptions); ok {
		workers = o.GetMaxConcurrentReconciles()
	}
	if o, ok := adapter.(interface {
		GetRateLimiter() workqueue.TypedRateLimiter[reconcile.Request]
	}); ok {
		if limiter := o.GetRateLimiter(); limiter != nil {
			b.rateLimiter = limiter
		}
	}
	if workers > 0 {
		b.workers = workers
	}
	if o, ok := adapter.(BatchOptions); ok && o.GetBatchSize() > 0 {
		b.batch = o.GetBatchSize()
	}
}

func (b *binding) bindWatches(adapter ReconcileAdapter) error {
	o, ok := adapter.(ReconcileWatchOptions)
	if !ok {
		return nil
	}
	b.newEmployer, b.newEmployee = o.NewEmployer, o.NewEmployee
	if isNil(b.newEmployer()) {
		return errors.New("NewEmployer returns nil")
	}
	if isNil(b.newEmployee()) {
		return errors.New("NewEmployee returns nil")
	}
	b.employerHandler, b.employeeHandler = o.EmployerEventHandler(), o.EmployeeEventHandler()
	b.employerFilter, b.employeeFilter = o.EmployerPredicates(), o.EmployeePredicates()
	return nil
}

func isNil(object client.Object) bool {
	value := reflect.ValueOf(object)
	return !value.IsValid() || value.Kind() == reflect.Pointer && value.IsNil()
}

func (b *binding) bindLifecycle(adapter ReconcileAdapter) {
	if o, ok := adapter.(LifecycleFinalizerRecordOptions); ok {
		b.follow, b.recordEmployees = o.FollowPodOpsLifeCycle(), o.NeedRecordLifecycleFinalizerCondition()
	}
	if o, ok := adapter.(ReconcileLifecycleOptions); ok {
		b.follow, b.recordEmployees = o.FollowPodOpsLifeCycle(), o.NeedRecordEmployees()
	}
	if o, ok := adapter.(ExpectedFinalizerRecordOptions); ok {
		b.recordExpected = o.NeedRecordExpectedFinalizerCondition()
	}
}

func (b *binding) bindRecords(adapter ReconcileAdapter) {
	if o, ok := adapter.(StatusRecordOptions); ok {
		b.recordStatuses, b.recordErrors = o.RecordStatuses, o.RecordErrorConditions
	}
	if o, ok := adapter.(ReconcileRequeueOptions); ok {
		b.requeue = max(0, o.EmployeeSyncRequeueInterval())
	}
	b.instance = func(client.Object) string { return "" }
	if o, ok := adapter.(ProviderInstanceOptions); ok {
		b.instance = o.ProviderInstance
	}
	if o, ok := adapter.(WebhookAdapter); ok {
		b.employersFor = o.GetEmployersByEmployee
	}
}

// manages reports whether an employer belongs to the adapter.
func (b *binding) manages(employer client.Object) bool {
	return b.employerFilter.Create(event.CreateEvent{Object: employer})
}

// employerIsService reports whether employers are Services, whose employees follow from the
// selector.
func (b *binding) employerIsService() bool {
	_, ok := b.newEmployer().(*corev1.Service)
	return ok
}
