package demo

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/pkg/resourceconsist"
	"github.com/podops-dev/podops/pkg/resourceconsist/service"
)

// ControllerName names the controller in logs, metrics and events.
const ControllerName = "resource-consist-demo"

const (
	vip          = "demo-remote-VIP"
	vipQPS       = 100
	servesWeight = 100
)

// Adapter reconciles a Provider with Services and their pods.
type Adapter struct {
	reader   client.Reader
	provider Provider
}

var _ resourceconsist.ReconcileAdapter = &Adapter{}

// New returns an adapter that reads pods from reader, which should be a cache.
func New(reader client.Reader, provider Provider) *Adapter {
	return &Adapter{reader: reader, provider: provider}
}

// GetControllerName implements resourceconsist.ReconcileAdapter.
func (a *Adapter) GetControllerName() string { return ControllerName }

// GetSelectedEmployeeNames returns the names of the pods that the Service selects.
func (a *Adapter) GetSelectedEmployeeNames(ctx context.Context, employer client.Object) ([]string, error) {
	return service.Names(ctx, a.reader, employer)
}

// GetExpectedEmployer returns one virtual address for every Service.
func (a *Adapter) GetExpectedEmployer(_ context.Context, employer client.Object) ([]resourceconsist.IEmployer, error) {
	details := DemoServiceDetails{RemoteVIP: vip, RemoteVIPQPS: vipQPS}
	return []resourceconsist.IEmployer{DemoServiceStatus{EmployerId: employer.GetName(), EmployerStatuses: details}}, nil
}

// GetCurrentEmployer returns the virtual address at the provider, if it exists.
func (a *Adapter) GetCurrentEmployer(ctx context.Context, employer client.Object) ([]resourceconsist.IEmployer, error) {
	details, has, err := a.provider.VIP(ctx, employerName(employer))
	if err != nil || !has {
		return nil, err
	}
	return []resourceconsist.IEmployer{DemoServiceStatus{EmployerId: employer.GetName(), EmployerStatuses: details}}, nil
}

// GetExpectedEmployee returns a real server for every pod with an address. LifecycleReady
// is false while the pod is prepared or operated on: its traffic must be off then.
func (a *Adapter) GetExpectedEmployee(ctx context.Context, employer client.Object) ([]resourceconsist.IEmployee, error) {
	pods, err := service.Selected(ctx, a.reader, employer)
	if err != nil {
		return nil, err
	}
	var expected []resourceconsist.IEmployee
	for _, pod := range pods {
		statuses, err := resourceconsist.GetCommonPodEmployeeStatus(pod)
		if err != nil {
			return nil, err
		}
		if statuses.Ip == "" {
			continue
		}
		extra := PodExtraStatus{TrafficOn: statuses.LifecycleReady}
		if extra.TrafficOn {
			extra.TrafficWeight = servesWeight
		}
		statuses.ExtraStatus = extra
		expected = append(expected, DemoPodStatus{EmployeeId: pod.Name, EmployeeName: pod.Name, EmployeeStatuses: statuses})
	}
	return expected, nil
}

// GetCurrentEmployee returns all real servers that the provider has for the Service.
func (a *Adapter) GetCurrentEmployee(ctx context.Context, employer client.Object) ([]resourceconsist.IEmployee, error) {
	servers, err := a.provider.RealServers(ctx, employerName(employer))
	if err != nil {
		return nil, err
	}
	var current []resourceconsist.IEmployee
	for name, statuses := range servers {
		current = append(current, DemoPodStatus{EmployeeId: name, EmployeeName: name, EmployeeStatuses: statuses})
	}
	return current, nil
}

// VIPs are virtual addresses, each a DemoServiceStatus.
type VIPs = []resourceconsist.IEmployer

// Servers are real servers, each a DemoPodStatus.
type Servers = []resourceconsist.IEmployee

// CreateEmployer creates virtual addresses.
func (a *Adapter) CreateEmployer(ctx context.Context, employer client.Object, toCreates VIPs) (VIPs, VIPs, error) {
	return service.Each(ctx, toCreates, func(ctx context.Context, one resourceconsist.IEmployer) error {
		details, ok := one.GetEmployerStatuses().(DemoServiceDetails)
		if !ok {
			return fmt.Errorf("employer %s has the statuses of another adapter: %T", one.GetEmployerId(), one.GetEmployerStatuses())
		}
		return a.provider.PutVIP(ctx, employerName(employer), details)
	})
}

// UpdateEmployer calls CreateEmployer: the provider replaces existing addresses.
func (a *Adapter) UpdateEmployer(ctx context.Context, employer client.Object, toUpdates VIPs) (VIPs, VIPs, error) {
	return a.CreateEmployer(ctx, employer, toUpdates)
}

// DeleteEmployer removes virtual addresses.
func (a *Adapter) DeleteEmployer(ctx context.Context, employer client.Object, toDeletes VIPs) (VIPs, VIPs, error) {
	return service.Each(ctx, toDeletes, func(ctx context.Context, _ resourceconsist.IEmployer) error {
		return a.provider.DeleteVIP(ctx, employerName(employer))
	})
}

// CreateEmployees creates real servers, with traffic or without.
func (a *Adapter) CreateEmployees(ctx context.Context, employer client.Object, toCreates Servers) (Servers, Servers, error) {
	return service.Each(ctx, toCreates, func(ctx context.Context, one resourceconsist.IEmployee) error {
		statuses, ok := one.GetEmployeeStatuses().(resourceconsist.PodEmployeeStatuses)
		if !ok {
			return fmt.Errorf("employee %s has the statuses of another adapter: %T", one.GetEmployeeName(), one.GetEmployeeStatuses())
		}
		return a.provider.PutRealServer(ctx, employerName(employer), one.GetEmployeeName(), statuses)
	})
}

// UpdateEmployees switches traffic on and off.
func (a *Adapter) UpdateEmployees(ctx context.Context, employer client.Object, toUpdates Servers) (Servers, Servers, error) {
	return a.CreateEmployees(ctx, employer, toUpdates)
}

// DeleteEmployees removes real servers.
func (a *Adapter) DeleteEmployees(ctx context.Context, employer client.Object, toDeletes Servers) (Servers, Servers, error) {
	return service.Each(ctx, toDeletes, func(ctx context.Context, one resourceconsist.IEmployee) error {
		return a.provider.DeleteRealServer(ctx, employerName(employer), one.GetEmployeeName())
	})
}

func employerName(employer client.Object) string {
	return employer.GetNamespace() + "/" + employer.GetName()
}
