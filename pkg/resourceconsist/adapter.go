package resourceconsist

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// ReconcileAdapter is the interface that every adapter implements. Several workers call its
// methods at once, but never two for the same employer. Each call has a deadline; an
// adapter passes ctx on to its provider and returns when ctx ends.
//
// The employer passed in is a copy that the adapter may read and must not keep.
type ReconcileAdapter interface {
	// GetControllerName names the controller in logs, metrics and events. It is unique
	// in a manager and never changes.
	GetControllerName() string

	// GetSelectedEmployeeNames returns the names of the employees that the employer
	// selects, in its own namespace, in any order. An employer with an empty selector
	// selects no employees.
	GetSelectedEmployeeNames(ctx context.Context, employer client.Object) ([]string, error)

	// GetExpectedEmployer returns the items that the provider should have for the employer itself
	// (a virtual address, a listener), GetCurrentEmployer the items that it has. Nil and empty mean
	// no items. GetExpectedEmployer is not called while the employer is being deleted: nothing is
	// expected then.
	GetExpectedEmployer(ctx context.Context, employer client.Object) ([]IEmployer, error)
	GetCurrentEmployer(ctx context.Context, employer client.Object) ([]IEmployer, error)

	// CreateEmployer, UpdateEmployer and DeleteEmployer change the provider, and are safe
	// to repeat. They return the items that succeeded and the items that failed; partial
	// success is normal. An item in neither list counts as failed if an error is
	// returned, and otherwise as succeeded. Succeeded means accepted: GetCurrentEmployer
	// returns the actual state.
	CreateEmployer(ctx context.Context, employer client.Object, toCreates []IEmployer) ([]IEmployer, []IEmployer, error)
	UpdateEmployer(ctx context.Context, employer client.Object, toUpdates []IEmployer) ([]IEmployer, []IEmployer, error)
	DeleteEmployer(ctx context.Context, employer client.Object, toDeletes []IEmployer) ([]IEmployer, []IEmployer, error)

	// GetExpectedEmployee returns the items that the provider should have for the employees (a real
	// server), GetCurrentEmployee the items of this adapter that it has: current items that are not expected are
	// deleted, so items that others have added are left out. An employee that is there and should take
	// no traffic may be left out of the expected items, or be expected with
	// PodEmployeeStatuses.LifecycleReady false.
	GetExpectedEmployee(ctx context.Context, employer client.Object) ([]IEmployee, error)
	GetCurrentEmployee(ctx context.Context, employer client.Object) ([]IEmployee, error)

	// CreateEmployees, UpdateEmployees and DeleteEmployees are as CreateEmployer,
	// UpdateEmployer and DeleteEmployer. They may be called several times at once for
	// one employer, with different employees.
	CreateEmployees(ctx context.Context, employer client.Object, toCreates []IEmployee) ([]IEmployee, []IEmployee, error)
	UpdateEmployees(ctx context.Context, employer client.Object, toUpdates []IEmployee) ([]IEmployee, []IEmployee, error)
	DeleteEmployees(ctx context.Context, employer client.Object, toDeletes []IEmployee) ([]IEmployee, []IEmployee, error)
}

// IEmployer is one item of an employer at the provider.
type IEmployer interface {
	// GetEmployerId is unique within one employer, and stable.
	GetEmployerId() string
	GetEmployerStatuses() interface{}

	// EmployerEqual reports whether the current item is as expected. It is called on the
	// expected item with the current item.
	EmployerEqual(employer IEmployer) (bool, error)
}

// IEmployee is one item of an employee at the provider.
type IEmployee interface {
	// GetEmployeeId is unique within one employer, and stable. It should not be an address,
	// which a pod may not have yet: two pods without an address would share an id.
	GetEmployeeId() string

	// GetEmployeeName is the name of the object, in the namespace of the employer. A current
	// employee that belongs to no known object has the empty name; while there is such an employee,
	// absence alone does not confirm that the traffic of a pod is off.
	GetEmployeeName() string

	// GetEmployeeStatuses returns a PodEmployeeStatuses or a *PodEmployeeStatuses for
	// employees that are pods. With any other type, traffic counts as off only when the
	// employee is absent from the current items.
	GetEmployeeStatuses() interface{}

	// EmployeeEqual reports whether the current item is as expected: its traffic is on or
	// off as expected, and not merely about to be. It is called on the expected item with
	// the current one.
	EmployeeEqual(employee IEmployee) (bool, error)
}

// ReconcileOptions is optional. Without it five employers are reconciled at once, and an
// employer that fails is retried after 200 ms, then twice that, up to a minute.
type ReconcileOptions interface {
	// GetRateLimiter returns the limiter that decides when a failed employer is retried.
	// Nil: the default.
	GetRateLimiter() workqueue.TypedRateLimiter[reconcile.Request]

	// GetMaxConcurrentReconciles is the number of employers that are reconciled at
	// once. Zero or less: the default.
	GetMaxConcurrentReconciles() int
}

// MaxConcurrentOptions is optional: the second method of ReconcileOptions under the name
// that adapters written for KusionStack use. ReconcileOptions wins.
type MaxConcurrentOptions interface {
	GetMaxConcurrent() int
}

// ReconcileWatchOptions is optional. Without it the employer is a Service with the label
// kusionstack.io/control: "true", and the employee a Pod.
//
// An employer must not belong to two adapters: their predicates must be disjoint.
type ReconcileWatchOptions interface {
	// NewEmployer and NewEmployee return an empty object of the kind.
	NewEmployer() client.Object
	NewEmployee() client.Object

	// EmployerEventHandler and EmployeeEventHandler turn events into requests for
	// employers. Nil: the default, which is right for every employer that selects
	// employees in its own namespace.
	EmployerEventHandler() handler.EventHandler
	EmployeeEventHandler() handler.EventHandler

	// EmployerPredicates and EmployeePredicates filter events. The Create function of
	// EmployerPredicates also decides whether an employer belongs to this adapter: when it
	// turns false, the employer is cleaned up as if it had been deleted.
	EmployerPredicates() predicate.Funcs
	EmployeePredicates() predicate.Funcs
}

// ReconcileLifecycleOptions is optional. Without it the adapter follows the lifecycle, and
// keeps no records.
type ReconcileLifecycleOptions interface {
	// FollowPodOpsLifeCycle reports whether protection finalizers are added to employees
	// and removed from them. It requires employees that are pods, and employers that have a
	// namespace.
	FollowPodOpsLifeCycle() bool

	// NeedRecordEmployees reports whether the names of the employees that may carry the
	// finalizer are recorded in an annotation of the employer before the provider is
	// called. The record helps where the selection changes while the manager is down, or
	// where other clients change the provider.
	NeedRecordEmployees() bool
}

// LifecycleFinalizerRecordOptions is optional: NeedRecordEmployees under the name that
// adapters written for KusionStack use. ReconcileLifecycleOptions wins.
type LifecycleFinalizerRecordOptions interface {
	FollowPodOpsLifeCycle() bool
	NeedRecordLifecycleFinalizerCondition() bool
}

// ExpectedFinalizerRecordOptions is optional. It records the names of the employees that
// expect the finalizer in an annotation of the employer. Without it they are not recorded.
type ExpectedFinalizerRecordOptions interface {
	NeedRecordExpectedFinalizerCondition() bool
}

// StatusRecordOptions is optional: the adapter records the result of a reconcile. An error
// is reported in an event, and the employer is retried.
type StatusRecordOptions interface {
	// RecordStatuses is called at the end of a reconcile in which nothing failed.
	RecordStatuses(ctx context.Context, employer client.Object, employerResults CUDEmployerResults, employeeResults CUDEmployeeResults) error

	// RecordErrorConditions is called at the end of a reconcile in which something
	// failed. err names each employee that failed, up to a bound (see SyncError).
	RecordErrorConditions(ctx context.Context, employer client.Object, err error) error
}

// ReconcileRequeueOptions is optional.
type ReconcileRequeueOptions interface {
	// EmployeeSyncRequeueInterval is the time between two reads of the provider while the
	// traffic of an employee is not confirmed. Zero or less: the default, which begins with
	// 200 ms and grows to 5 s.
	EmployeeSyncRequeueInterval() time.Duration
}

// BatchOptions is optional.
type BatchOptions interface {
	// GetBatchSize returns the number of items that a call has at most. Zero or less: the default, 20.
	GetBatchSize() int
}

// ProviderInstanceOptions is optional: the provider consists of instances that fail independently, such as load balancers
// with addresses of their own. The controller backs off from an instance whose calls all fail, and calls the others.
type ProviderInstanceOptions interface {
	// ProviderInstance returns a name for the instance that has the items of an employer, which
	// is part of errors and events; empty if it is not known. It makes no call.
	ProviderInstance(employer client.Object) string
}

// WebhookAdapter is optional: at the creation of a pod, admission calls it for the
// employers that will select the pod. Without it, these are all Services of the adapter
// that select the pod; an adapter for another kind of employer and without it records the
// expected finalizer shortly after the creation of the pod.
type WebhookAdapter interface {
	Name() string
	GetEmployersByEmployee(ctx context.Context, employee client.Object, client client.Client) ([]client.Object, error)
}

// CUDEmployerResults holds the results of the verbs for employers, sorted by id.
type CUDEmployerResults struct {
	SuccCreated, FailCreated []IEmployer
	SuccUpdated, FailUpdated []IEmployer
	SuccDeleted, FailDeleted []IEmployer
	Unchanged                []IEmployer
}

// CUDEmployeeResults holds the results of the verbs for employees, sorted by id. An
// employee that failed before and is not due yet is in the list of failures, too.
type CUDEmployeeResults struct {
	SuccCreated, FailCreated []IEmployee
	SuccUpdated, FailUpdated []IEmployee
	SuccDeleted, FailDeleted []IEmployee
	Unchanged                []IEmployee
}
