package haproxy

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/pkg/resourceconsist"
	"github.com/podops-dev/podops/pkg/resourceconsist/service"
)

// placement is the employer: the location of a Service's servers. It is kept in an
// annotation of the Service, the only record once the Service names another location.
type placement struct{ at location }

var _ resourceconsist.IEmployer = placement{}

// GetEmployerId is the same for every location: a Service has one location at a time.
func (placement) GetEmployerId() string { return "backend" } //nolint:staticcheck // the name is the interface's

// GetEmployerStatuses returns the Runtime API, a space and the backend.
func (p placement) GetEmployerStatuses() interface{} { return p.at.String() }

// EmployerEqual reports whether it is the same location.
func (p placement) EmployerEqual(employer resourceconsist.IEmployer) (bool, error) {
	other, ok := employer.(placement)
	if !ok {
		return false, fmt.Errorf("comparing the location %s: got a %T", p.at, employer)
	}
	return p == other, nil
}

// wanted returns the location that the annotations name, if the manager may reach it and no
// other location is in use.
func (a *Adapter) wanted(service *corev1.Service) (location, error) {
	at, err := wantedLocation(service)
	if err != nil {
		return location{}, err
	}
	if err := a.options.Allowed.check(at.endpoint); err != nil {
		return location{}, fmt.Errorf("annotation %s: %w", RuntimeAnnotationKey, err)
	}
	used, placed, err := usedLocation(service)
	if err != nil {
		return location{}, err
	}
	if placed && used != at {
		return location{}, moveError(used, at)
	}
	return at, nil
}

func moveError(used, wanted location) error {
	return fmt.Errorf("servers are in %q, and annotations %s and %s name %q: restore the old values; "+
		"to move, create a second Service with the new annotations and delete the present Service afterwards",
		used, RuntimeAnnotationKey, BackendAnnotationKey, wanted)
}

// current returns the location where servers of the Service can be: the record, or, before
// the cache has the record, the annotations. It returns false when no server was ever
// added.
func (a *Adapter) current(service *corev1.Service) (location, bool, error) {
	used, placed, err := usedLocation(service)
	if err != nil {
		return location{}, false, err
	}
	if !placed {
		at, err := a.wanted(service)
		return at, err == nil, nil
	}
	if err := a.options.Allowed.check(used.endpoint); err != nil {
		return location{}, false, fmt.Errorf("annotation %s: %w", InUseAnnotationKey, err)
	}
	return used, true, nil
}

// GetExpectedEmployer returns the location that the annotations name, or the error of an
// invalid location.
func (a *Adapter) GetExpectedEmployer(_ context.Context, employer client.Object) ([]resourceconsist.IEmployer, error) {
	service, err := service.Of(employer)
	if err != nil {
		return nil, err
	}
	at, err := a.wanted(service)
	if err != nil {
		return nil, err
	}
	return []resourceconsist.IEmployer{placement{at}}, nil
}

// GetCurrentEmployer returns the recorded location.
func (a *Adapter) GetCurrentEmployer(_ context.Context, employer client.Object) ([]resourceconsist.IEmployer, error) {
	service, err := service.Of(employer)
	if err != nil {
		return nil, err
	}
	used, placed, err := usedLocation(service)
	if err != nil || !placed {
		return nil, err
	}
	return []resourceconsist.IEmployer{placement{used}}, nil
}

// Placements holds at most one: the location of a Service's servers.
type Placements = []resourceconsist.IEmployer

// CreateEmployer records the location before a server is added.
func (a *Adapter) CreateEmployer(ctx context.Context, employer client.Object, toCreates Placements) (Placements, Placements, error) {
	return service.Each(ctx, toCreates, func(ctx context.Context, one resourceconsist.IEmployer) error {
		service, err := service.Of(employer)
		if err != nil {
			return err
		}
		wanted, ok := one.(placement)
		if !ok {
			return fmt.Errorf("employer %s: got a %T", one.GetEmployerId(), one)
		}
		return a.record(ctx, service, wanted.at)
	})
}

// UpdateEmployer is never called: GetExpectedEmployer returns an error for another
// location.
func (a *Adapter) UpdateEmployer(ctx context.Context, _ client.Object, toUpdates Placements) (Placements, Placements, error) {
	return service.Each(ctx, toUpdates, func(_ context.Context, one resourceconsist.IEmployer) error {
		return fmt.Errorf("the location of a Service cannot be changed to %q", one.GetEmployerStatuses())
	})
}

// DeleteEmployer removes the record, once no server is left.
func (a *Adapter) DeleteEmployer(ctx context.Context, employer client.Object, toDeletes Placements) (Placements, Placements, error) {
	return service.Each(ctx, toDeletes, func(ctx context.Context, _ resourceconsist.IEmployer) error {
		service, err := service.Of(employer)
		if err != nil {
			return err
		}
		at, placed, err := a.current(service)
		if err != nil || !placed {
			return err
		}
		left, err := a.servers(ctx, service, at)
		if err != nil {
			return err
		}
		if len(left) > 0 {
			return fmt.Errorf("%d servers are left in %q", len(left), at)
		}
		return a.patchRecord(ctx, service, nil)
	})
}

// record writes the location of the servers to the Service. The Service at hand may be
// older than the record; writing the record again changes nothing.
func (a *Adapter) record(ctx context.Context, service *corev1.Service, at location) error {
	if _, placed, err := usedLocation(service); err != nil || placed {
		return err
	}
	text := at.String()
	return a.patchRecord(ctx, service, &text)
}

// patchRecord writes the annotation, or removes it when text is empty.
func (a *Adapter) patchRecord(ctx context.Context, service *corev1.Service, text *string) error {
	before := service.DeepCopy()
	after := service.DeepCopy()
	delete(after.Annotations, InUseAnnotationKey)
	if text != nil {
		if after.Annotations == nil {
			after.Annotations = map[string]string{}
		}
		after.Annotations[InUseAnnotationKey] = *text
	}
	if err := a.client.Patch(ctx, after, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing annotation %s: %w", InUseAnnotationKey, err)
	}
	return nil
}
