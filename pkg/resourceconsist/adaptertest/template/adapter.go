package main

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	rc "github.com/podops-dev/podops/pkg/resourceconsist"
	"github.com/podops-dev/podops/pkg/resourceconsist/adaptertest"
	"github.com/podops-dev/podops/pkg/resourceconsist/service"
)

// Template is an adapter: Services and Pods in front of a FakeProvider.
type Template struct {
	Client   client.Client
	Provider *adaptertest.FakeProvider
}

// pool is the item of a Service at the provider, named as the Service is. A provider for more than
// one namespace needs the namespace in the name, too.
type pool struct{ Name, Revision string }

func (p pool) GetEmployerId() string                          { return p.Name } //nolint:staticcheck // the name is the interface's
func (p pool) GetEmployerStatuses() any                       { return p.Revision }
func (p pool) EmployerEqual(other rc.IEmployer) (bool, error) { return other == rc.IEmployer(p), nil }

// server is the item of a Pod at the provider. Its id is the UID of the pod: a new pod has no
// address, and a pod of a StatefulSet has the name of its predecessor.
type server struct{ adaptertest.FakeServer }

func (s server) GetEmployeeId() string   { return s.ID } //nolint:staticcheck // the name is the interface's
func (s server) GetEmployeeName() string { return s.Name }

// GetEmployeeStatuses reports in LifecycleReady whether traffic is on.
func (s server) GetEmployeeStatuses() any {
	return rc.PodEmployeeStatuses{Ip: s.Address, LifecycleReady: s.On, ExtraStatus: s.Weight}
}
func (s server) EmployeeEqual(other rc.IEmployee) (bool, error) { return other == rc.IEmployee(s), nil }

// GetControllerName is unique in a manager.
func (a *Template) GetControllerName() string { return "adapter-template" }

// GetSelectedEmployeeNames names the pods that the Service selects.
func (a *Template) GetSelectedEmployeeNames(ctx context.Context, employer client.Object) ([]string, error) {
	return service.Names(ctx, a.Client, employer)
}

// GetExpectedEmployer returns one pool.
func (a *Template) GetExpectedEmployer(_ context.Context, employer client.Object) ([]rc.IEmployer, error) {
	return []rc.IEmployer{pool{Name: employer.GetName(), Revision: employer.GetAnnotations()[adaptertest.RevisionAnnotationKey]}}, nil
}

// GetCurrentEmployer reads the provider. Only "not found" means that the pool does not
// exist.
func (a *Template) GetCurrentEmployer(ctx context.Context, employer client.Object) ([]rc.IEmployer, error) {
	revision, err := a.Provider.Pool(ctx, employer.GetName())
	if err != nil {
		return nil, ignore(err, adaptertest.ErrNotFound)
	}
	return []rc.IEmployer{pool{Name: employer.GetName(), Revision: revision}}, nil
}

// CreateEmployer accepts a pool that exists: every verb is safe to repeat.
func (a *Template) CreateEmployer(ctx context.Context, _ client.Object, pools []rc.IEmployer) ([]rc.IEmployer, []rc.IEmployer, error) {
	return each(ctx, pools, func(p pool) error {
		return ignore(a.Provider.CreatePool(ctx, p.Name, p.Revision), adaptertest.ErrExists)
	})
}

// UpdateEmployer changes the fields that EmployerEqual compares.
func (a *Template) UpdateEmployer(ctx context.Context, _ client.Object, pools []rc.IEmployer) ([]rc.IEmployer, []rc.IEmployer, error) {
	return each(ctx, pools, func(p pool) error { return a.Provider.SetPool(ctx, p.Name, p.Revision) })
}

// DeleteEmployer is called after the last server was deleted.
func (a *Template) DeleteEmployer(ctx context.Context, _ client.Object, pools []rc.IEmployer) ([]rc.IEmployer, []rc.IEmployer, error) {
	return each(ctx, pools, func(p pool) error { return ignore(a.Provider.DeletePool(ctx, p.Name), adaptertest.ErrNotFound) })
}

// GetExpectedEmployee returns a server for each pod with an address, on if its lifecycle is
// ready.
func (a *Template) GetExpectedEmployee(ctx context.Context, employer client.Object) ([]rc.IEmployee, error) {
	pods, err := service.Selected(ctx, a.Client, employer)
	var servers []rc.IEmployee
	for _, pod := range pods {
		common, _ := rc.GetCommonPodEmployeeStatus(pod) // fails for nil alone
		if common.Ip != "" {
			servers = append(servers, server{adaptertest.FakeServer{
				ID: string(pod.UID), Name: pod.Name, Address: common.Ip, On: common.LifecycleReady, Weight: adaptertest.PodWeight(pod),
			}})
		}
	}
	return servers, err
}

// GetCurrentEmployee reads the provider each time: a record of sent requests is not the current
// state. A server with open sessions counts as on, so that no operation begins. A server without a
// pod's name belongs to others and is not returned: what is current and not expected is deleted.
func (a *Template) GetCurrentEmployee(ctx context.Context, employer client.Object) ([]rc.IEmployee, error) {
	found, err := a.Provider.Servers(ctx, employer.GetName())
	var servers []rc.IEmployee
	for _, s := range found {
		if s.Name != "" {
			servers = append(servers, server{adaptertest.FakeServer{ID: s.ID, Name: s.Name, Address: s.Address, On: s.On || s.Sessions > 0, Weight: s.Weight}})
		}
	}
	return servers, err
}

// CreateEmployees updates a server that exists.
func (a *Template) CreateEmployees(ctx context.Context, employer client.Object, servers []rc.IEmployee) ([]rc.IEmployee, []rc.IEmployee, error) {
	return each(ctx, servers, func(s server) error {
		if err := a.Provider.AddServer(ctx, employer.GetName(), s.FakeServer); !errors.Is(err, adaptertest.ErrExists) {
			return err
		}
		return a.Provider.SetServer(ctx, employer.GetName(), s.FakeServer)
	})
}

// UpdateEmployees changes address, traffic and weight, to off as well as to on.
func (a *Template) UpdateEmployees(ctx context.Context, employer client.Object, servers []rc.IEmployee) ([]rc.IEmployee, []rc.IEmployee, error) {
	return each(ctx, servers, func(s server) error { return a.Provider.SetServer(ctx, employer.GetName(), s.FakeServer) })
}

// DeleteEmployees takes the traffic off first, and removes servers that a read has shown to
// be off. Until then the server is current, and the framework calls again.
func (a *Template) DeleteEmployees(ctx context.Context, employer client.Object, servers []rc.IEmployee) ([]rc.IEmployee, []rc.IEmployee, error) {
	return each(ctx, servers, func(s server) error {
		if !s.On {
			return ignore(a.Provider.RemoveServer(ctx, employer.GetName(), s.ID), adaptertest.ErrNotFound)
		}
		s.On = false
		return ignore(a.Provider.SetServer(ctx, employer.GetName(), s.FakeServer), adaptertest.ErrNotFound)
	})
}

// each calls service.Each with the items as this adapter's type.
func each[T, Own any](ctx context.Context, items []T, do func(Own) error) (succeeded, failed []T, err error) {
	return service.Each(ctx, items, func(_ context.Context, item T) error {
		if own, is := any(item).(Own); is {
			return do(own)
		}
		return fmt.Errorf("%T is not of this adapter", item)
	})
}

// ignore returns nil if err is done, which means that nothing is left to do.
func ignore(err, done error) error {
	if errors.Is(err, done) {
		return nil
	}
	return err
}
