package alibabacloudslb

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/resourceconsist"
	"github.com/podops-dev/podops/pkg/resourceconsist/service"
)

// ControllerName is the name of the controller in logs, metrics and events.
const ControllerName = "alibaba-cloud-slb-controller"

// Adapter is the ReconcileAdapter of this package. It does not manage employers: the cloud
// controller manager, or the user, creates load balancers and listeners.
type Adapter struct {
	client  client.Client
	api     API
	resolve ServerResolver
}

var (
	_ resourceconsist.ReconcileAdapter          = (*Adapter)(nil)
	_ resourceconsist.ReconcileWatchOptions     = (*Adapter)(nil)
	_ resourceconsist.ReconcileLifecycleOptions = (*Adapter)(nil)
)

// New returns an adapter. c reads Services, Pods and Nodes, from a cache, and patches
// annotations of managed Services. A nil resolve means ResolveServer.
func New(c client.Client, api API, resolve ServerResolver) (*Adapter, error) {
	if c == nil || api == nil {
		return nil, errors.New("the SLB adapter needs a client and an API")
	}
	if resolve == nil {
		resolve = ResolveServer(c)
	}
	return &Adapter{client: c, api: api, resolve: resolve}, nil
}

// GetControllerName implements ReconcileAdapter.
func (a *Adapter) GetControllerName() string { return ControllerName }

// FollowPodOpsLifeCycle implements ReconcileLifecycleOptions.
func (a *Adapter) FollowPodOpsLifeCycle() bool { return true }

// NeedRecordEmployees implements ReconcileLifecycleOptions. The cloud controller manager
// changes the load balancer, too, and pods may leave a Service while the adapter is down.
func (a *Adapter) NeedRecordEmployees() bool { return true }

// NewEmployer implements ReconcileWatchOptions.
func (a *Adapter) NewEmployer() client.Object { return &corev1.Service{} }

// NewEmployee implements ReconcileWatchOptions.
func (a *Adapter) NewEmployee() client.Object { return &corev1.Pod{} }

// EmployerEventHandler implements ReconcileWatchOptions: the default.
func (a *Adapter) EmployerEventHandler() handler.EventHandler { return nil }

// EmployeeEventHandler implements ReconcileWatchOptions: the default.
func (a *Adapter) EmployeeEventHandler() handler.EventHandler { return nil }

// EmployerPredicates implements ReconcileWatchOptions: controlled Services of this adapter.
func (a *Adapter) EmployerPredicates() predicate.Funcs {
	return predicate.NewPredicateFuncs(func(object client.Object) bool {
		service, ok := object.(*corev1.Service)
		return ok && belongs(service)
	})
}

// EmployeePredicates implements ReconcileWatchOptions: every pod.
func (a *Adapter) EmployeePredicates() predicate.Funcs {
	return predicate.NewPredicateFuncs(func(client.Object) bool { return true })
}

// GetSelectedEmployeeNames implements ReconcileAdapter.
func (a *Adapter) GetSelectedEmployeeNames(ctx context.Context, employer client.Object) ([]string, error) {
	return service.Names(ctx, a.client, employer)
}

// GetExpectedEmployee implements ReconcileAdapter: every selected pod that has not ended,
// with traffic on or off. A terminating pod is off, and deleted when it no longer exists:
// its connections may end by themselves until then.
func (a *Adapter) GetExpectedEmployee(ctx context.Context, employer client.Object) ([]resourceconsist.IEmployee, error) {
	service, settings, err := readSettings(employer)
	if err != nil {
		return nil, err
	}
	if !expectsPods(service, settings) {
		return nil, nil
	}
	members, err := a.members(ctx, service)
	if err != nil {
		return nil, err
	}
	var expected []resourceconsist.IEmployee
	for _, m := range members {
		if m.selected {
			expected = append(expected, m.status(m.expected(settings)))
		}
	}
	return expected, nil
}

// GetCurrentEmployee implements ReconcileAdapter: every pod in a group, and, with its
// traffic off, every selected pod in no group that should have no traffic. An observed
// Service without the control label has no current pods: they keep their traffic.
func (a *Adapter) GetCurrentEmployee(ctx context.Context, employer client.Object) ([]resourceconsist.IEmployee, error) {
	service, settings, err := readSettings(employer)
	if err != nil {
		return nil, err
	}
	members, err := a.members(ctx, service)
	if err != nil {
		return nil, err
	}
	if settings.Managed {
		return a.currentManaged(ctx, service, settings, members)
	}
	return a.currentObserved(ctx, service, settings, members)
}

// CreateEmployees implements ReconcileAdapter.
func (a *Adapter) CreateEmployees(
	ctx context.Context, employer client.Object, toCreates []resourceconsist.IEmployee,
) ([]resourceconsist.IEmployee, []resourceconsist.IEmployee, error) {
	return a.UpdateEmployees(ctx, employer, toCreates)
}

// UpdateEmployees implements ReconcileAdapter. It applies the expected state to pods
// wherever they are registered, and also registers pods. In an observed Service it does
// nothing: the cloud controller manager changes the groups, and GetCurrentEmployee reads
// the result.
func (a *Adapter) UpdateEmployees(
	ctx context.Context, employer client.Object, toUpdates []resourceconsist.IEmployee,
) ([]resourceconsist.IEmployee, []resourceconsist.IEmployee, error) {
	return a.change(ctx, employer, toUpdates, a.reach)
}

// DeleteEmployees implements ReconcileAdapter. As UpdateEmployees, it does not change
// observed Services.
func (a *Adapter) DeleteEmployees(
	ctx context.Context, employer client.Object, toDeletes []resourceconsist.IEmployee,
) ([]resourceconsist.IEmployee, []resourceconsist.IEmployee, error) {
	return a.change(ctx, employer, toDeletes, a.leave)
}

// GetExpectedEmployer implements ReconcileAdapter: nothing.
func (a *Adapter) GetExpectedEmployer(context.Context, client.Object) ([]resourceconsist.IEmployer, error) {
	return nil, nil
}

// GetCurrentEmployer implements ReconcileAdapter: nothing.
func (a *Adapter) GetCurrentEmployer(context.Context, client.Object) ([]resourceconsist.IEmployer, error) {
	return nil, nil
}

// CreateEmployer implements ReconcileAdapter. It is never called with an item.
func (a *Adapter) CreateEmployer(
	_ context.Context, _ client.Object, toCreates []resourceconsist.IEmployer,
) ([]resourceconsist.IEmployer, []resourceconsist.IEmployer, error) {
	return toCreates, nil, nil
}

// UpdateEmployer implements ReconcileAdapter. It is never called with an item.
func (a *Adapter) UpdateEmployer(
	_ context.Context, _ client.Object, toUpdates []resourceconsist.IEmployer,
) ([]resourceconsist.IEmployer, []resourceconsist.IEmployer, error) {
	return toUpdates, nil, nil
}

// DeleteEmployer implements ReconcileAdapter. It is never called with an item.
func (a *Adapter) DeleteEmployer(
	_ context.Context, _ client.Object, toDeletes []resourceconsist.IEmployer,
) ([]resourceconsist.IEmployer, []resourceconsist.IEmployer, error) {
	return toDeletes, nil, nil
}

// belongs reports whether the Service is controlled and belongs to this adapter.
func belongs(service *corev1.Service) bool {
	return appsv1alpha1.IsControlled(service.Labels) && Owns(service)
}

// expectsPods reports whether pods of the Service may be expected at the load balancer.
func expectsPods(service *corev1.Service, settings Settings) bool {
	return service.DeletionTimestamp == nil && belongs(service) && (!settings.Managed || len(settings.Groups) > 0)
}

func readSettings(employer client.Object) (*corev1.Service, Settings, error) {
	service, err := service.Of(employer)
	if err != nil {
		return nil, Settings{}, err
	}
	settings, err := ParseSettings(service)
	if err != nil {
		return nil, Settings{}, fmt.Errorf("service %s/%s: %w", service.Namespace, service.Name, err)
	}
	return service, settings, nil
}
