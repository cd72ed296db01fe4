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

// ReconcileAdapter is what an adapter has to implement. Its methods are called by
// several workers at once, though never by two for the same employer. Each call has a
// deadline; an adapter passes ctx on to its provider and returns when it ends.
//
// The employer passed in is a copy that the adapter may read and must not keep.
type ReconcileAdapter interface {
	// GetControllerName names the controller in logs, metrics and events. It is unique
	// in a manager and never changes.
	GetControllerName() string

	// GetSelectedEmployeeNames returns the names of the employees that the employer
	// selects, in its own namespace, in any order. An employer whose selector is empty
	// selects nobody.
	GetSelectedEmployeeNames(ctx context.Context, employer client.Object) ([]string, error)

	// GetExpectedEmployer returns what the provider should have for the employer itself
	// (a virtual address, a listener), GetCurrentEmployer what it has. Nil or empty:
	// nothing. They are not asked for what is expected while the employer is deleted:
	// nothing is.
	GetExpectedEmployer(ctx context.Context, employer client.Object) ([]IEmployer, error)
	GetCurrentEmployer(ctx context.Context, employer client.Object) ([]IEmployer, error)

	// CreateEmployer, UpdateEmployer and DeleteEmployer carry out changes at the
	// provider, and are safe to repeat. They return those that succeeded and those that
	// failed; partial success is normal. One that is in neither list counts as failed
	// when there is an error, and as succeeded when there is none. Succeeded means
	// accepted: what is really there is read from GetCurrentEmployer.
	CreateEmployer(ctx context.Context, employer client.Object, toCreates []IEmployer) ([]IEmployer, []IEmployer, error)
	UpdateEmployer(ctx context.Context, employer client.Object, toUpdates []IEmployer) ([]IEmployer, []IEmployer, error)
	DeleteEmployer(ctx context.Context, employer client.Object, toDeletes []IEmployer) ([]IEmployer, []IEmployer, error)

	// GetExpectedEmployee returns what the provider should have for each employee (a real
	// server), GetCurrentEmployee what it has. An employee that is there and should take
	// no traffic may be left out of what is expected, or be expected with
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

// IEmployer is the provider's side of an employer.
type IEmployer interface {
	// GetEmployerId is unique among those of one employer, and stable.
	GetEmployerId() string
	GetEmployerStatuses() interface{}

	// EmployerEqual reports whether the provider has what is expected. It is called on
	// the expected one with the current one.
	EmployerEqual(employer IEmployer) (bool, error)
}

// IEmployee is the provider's side of an employee.
type IEmployee interface {
	// GetEmployeeId is unique among those of one employer, and stable. It should not be
	// an address that a pod may not have yet: those without one would be the same.
	GetEmployeeId() string

	// GetEmployeeName is the name of the object, in the namespace of the employer. A
	// current employee that belongs to no known object has the empty name; while one is
	// there, nobody's traffic counts as off by mere absence.
	GetEmployeeName() string

	// GetEmployeeStatuses is a PodEmployeeStatuses, or a pointer to one, for employees
	// that are pods. With any other type, traffic counts as off only when the employee is
	// absent from what is current.
	GetEmployeeStatuses() interface{}

	// EmployeeEqual reports whether the provider has what is expected: then traffic is on
	// or off as expected, and not merely on its way there. It is called on the expected
	// one with the current one.
	EmployeeEqual(employee IEmployee) (bool, error)
}

// ReconcileOptions is optional. Without it five employers are worked on at once, and
// one that fails is tried again after 200 ms, then twice that, up to a minute.
type ReconcileOptions interface {
	// GetRateLimiter says when an employer that failed is tried again. Nil: the default.
	GetRateLimiter() workqueue.TypedRateLimiter[reconcile.Request]

	// GetMaxConcurrentReconciles is how many employers are worked on at once. Zero or
	// less: the default.
	GetMaxConcurrentReconciles() int
}

// MaxConcurrentOptions is optional: the second method of ReconcileOptions under the
// name that adapters written for KusionStack give it. ReconcileOptions wins.
type MaxConcurrentOptions interface {
	GetMaxConcurrent() int
}

// ReconcileWatchOptions is optional. Without it the employer is a Service with the label
// kusionstack.io/control: "true", and the employee a Pod.
//
// An employer must not belong to two adapters: predicates tell theirs apart.
type ReconcileWatchOptions interface {
	// NewEmployer and NewEmployee return an empty object of the kind.
	NewEmployer() client.Object
	NewEmployee() client.Object

	// EmployerEventHandler and EmployeeEventHandler turn events into requests for
	// employers. Nil: the default, which is right for every employer that selects
	// employees in its own namespace.
	EmployerEventHandler() handler.EventHandler
	EmployeeEventHandler() handler.EventHandler

	// EmployerPredicates filter events. The Create function also says whether an
	// employer belongs to this adapter at all: one for which it turns false is cleaned up
	// as if it had been deleted.
	EmployerPredicates() predicate.Funcs
	EmployeePredicates() predicate.Funcs
}

// ReconcileLifecycleOptions is optional. Without it the lifecycle is followed, and no
// records are kept.
type ReconcileLifecycleOptions interface {
	// FollowPodOpsLifeCycle: protection finalizers are put on employees and taken off.
	// Employees must be pods then, and employers have a namespace.
	FollowPodOpsLifeCycle() bool

	// NeedRecordEmployees: the names of the employees that may carry the finalizer are
	// kept in an annotation of the employer, written before the provider is called. It
	// helps where employment changes while the manager is away, or where others change
	// the provider.
	NeedRecordEmployees() bool
}

// LifecycleFinalizerRecordOptions is optional: NeedRecordEmployees under the name that
// adapters written for KusionStack give it. ReconcileLifecycleOptions wins.
type LifecycleFinalizerRecordOptions interface {
	FollowPodOpsLifeCycle() bool
	NeedRecordLifecycleFinalizerCondition() bool
}

// ExpectedFinalizerRecordOptions is optional: the names of the employees that expect the
// finalizer are kept in an annotation of the employer. Without it they are not.
type ExpectedFinalizerRecordOptions interface {
	NeedRecordExpectedFinalizerCondition() bool
}

// StatusRecordOptions is optional: what an adapter writes about a reconcile. An error is
// reported in an event, and the employer tried again.
type StatusRecordOptions interface {
	// RecordStatuses is called at the end of a reconcile in which nothing failed.
	RecordStatuses(ctx context.Context, employer client.Object, employerResults CUDEmployerResults, employeeResults CUDEmployeeResults) error

	// RecordErrorConditions is called at the end of a reconcile in which something
	// failed. err names each employee that failed, up to a bound (see SyncError).
	RecordErrorConditions(ctx context.Context, employer client.Object, err error) error
}

// ReconcileRequeueOptions is optional.
type ReconcileRequeueOptions interface {
	// EmployeeSyncRequeueInterval is how long to wait before the provider is asked again
	// about employees whose traffic it has not confirmed. Zero or less: the default,
	// which begins with 200 ms and grows to 5 s.
	EmployeeSyncRequeueInterval() time.Duration
}

// WebhookAdapter is optional: at the creation of a pod, admission asks it which
// employers will employ the pod. Without it, that is every Service of the adapter that
// selects the pod; an adapter with another kind of employer and without it records what
// is expected of a pod a moment after its creation.
type WebhookAdapter interface {
	Name() string
	GetEmployersByEmployee(ctx context.Context, employee client.Object, client client.Client) ([]client.Object, error)
}

// CUDEmployerResults is what came of the verbs for employers, sorted by id.
type CUDEmployerResults struct {
	SuccCreated, FailCreated []IEmployer
	SuccUpdated, FailUpdated []IEmployer
	SuccDeleted, FailDeleted []IEmployer
	Unchanged                []IEmployer
}

// CUDEmployeeResults is what came of the verbs for employees, sorted by id. One that
// failed before and waits for its next try is in the list of failures, too.
type CUDEmployeeResults struct {
	SuccCreated, FailCreated []IEmployee
	SuccUpdated, FailUpdated []IEmployee
	SuccDeleted, FailDeleted []IEmployee
	Unchanged                []IEmployee
}
