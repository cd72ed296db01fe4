package adaptertest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/podops-dev/podops/pkg/resourceconsist"
	"github.com/podops-dev/podops/pkg/resourceconsist/plan"
)

// employers returns the framework's plan for the items of the employer itself.
func (p picture) employers() (plan.Diff[resourceconsist.IEmployer], error) {
	item := func(e resourceconsist.IEmployer) plan.Item[resourceconsist.IEmployer] {
		return plan.Item[resourceconsist.IEmployer]{ID: e.GetEmployerId(), Value: e}
	}
	return between(p.expectedEmployers, p.currentEmployers, item, resourceconsist.IEmployer.EmployerEqual)
}

// employees returns the framework's plan for its employees.
func (p picture) employees() (plan.Diff[resourceconsist.IEmployee], error) {
	item := func(e resourceconsist.IEmployee) plan.Item[resourceconsist.IEmployee] {
		return plan.Item[resourceconsist.IEmployee]{ID: e.GetEmployeeId(), Name: e.GetEmployeeName(), Intent: newIntent(e), Value: e}
	}
	return between(p.expected, p.current, item, resourceconsist.IEmployee.EmployeeEqual)
}

// between returns the plan, and an error for items that cannot be planned.
func between[T any](expected, current []T, item func(T) plan.Item[T], equal func(expected, current T) (bool, error)) (plan.Diff[T], error) {
	items := func(values []T) []plan.Item[T] {
		all := make([]plan.Item[T], len(values))
		for i, value := range values {
			all[i] = item(value)
		}
		return all
	}
	diff := plan.Between(items(expected), items(current), equal)
	var errs []error
	for _, failure := range diff.Failed {
		errs = append(errs, fmt.Errorf("planning %q: %w", failure.Item.ID, failure.Err))
	}
	return diff, errors.Join(errs...)
}

// newIntent returns whether an expected employee should take traffic, as the framework does.
func newIntent(expected resourceconsist.IEmployee) plan.Intent {
	var ready bool
	switch statuses := expected.GetEmployeeStatuses().(type) {
	case resourceconsist.PodEmployeeStatuses:
		ready = statuses.LifecycleReady
	case *resourceconsist.PodEmployeeStatuses:
		if statuses == nil {
			return plan.IntentUnknown
		}
		ready = statuses.LifecycleReady
	default:
		return plan.IntentUnknown
	}
	if ready {
		return plan.IntentOn
	}
	return plan.IntentOff
}

func itemValues[T any](items []plan.Item[T]) []T {
	values := make([]T, len(items))
	for i, item := range items {
		values[i] = item.Value
	}
	return values
}

// pass runs one reconcile: gather, plan, act, confirm. It returns whether everything is
// confirmed as wanted, or why the state is unknown. It compares every confirmation of the
// adapter with the provider.
func (w *scenario) pass() (settled bool, err error) {
	w.t.Helper()
	before, err := w.read()
	if err != nil {
		return false, err
	}
	if _, err := w.conclude(before); err != nil {
		return false, err
	}
	if err := w.act(before); err != nil {
		return false, err
	}
	after, err := w.read()
	if err != nil {
		return false, err
	}
	return w.conclude(after)
}

// act carries out the plan of a picture in the framework's order: traffic off first, then items that employees
// depend on, then traffic on; items of the employer are deleted when its employees are.
func (w *scenario) act(p picture) error {
	w.t.Helper()
	employers, err := p.employers()
	if err != nil {
		return err
	}
	employees, err := p.employees()
	if err != nil {
		return err
	}
	carryOut(w, w.employeeVerb(UpdateEmployees), employees.Off)
	carryOut(w, w.employeeVerb(DeleteEmployees), employees.Delete)
	carryOut(w, w.employerVerb(CreateEmployer), employers.Create)
	carryOut(w, w.employerVerb(UpdateEmployer), slices.Concat(employers.Off, employers.Update))
	carryOut(w, w.employeeVerb(CreateEmployees), employees.Create)
	carryOut(w, w.employeeVerb(UpdateEmployees), employees.Update)
	if len(p.current) == 0 {
		carryOut(w, w.employerVerb(DeleteEmployer), employers.Delete)
	}
	return nil
}

func carryOut[T any](w *scenario, v verb[T], items []plan.Item[T]) {
	w.t.Helper()
	if len(items) > 0 {
		do(w, v, itemValues(items))
	}
}

// conclude compares the framework's conclusions from a picture with the provider, for every
// employee that was ever selected, and returns whether all are confirmed as wanted.
func (w *scenario) conclude(p picture) (settled bool, err error) {
	w.t.Helper()
	diff, err := p.employees()
	if err != nil {
		return false, err
	}
	confirmed := plan.ClassifyTraffic(diff)
	truth := w.Provider.Traffic(w.t, w.employer)
	settled = true
	for _, name := range w.names() {
		actual, state := truth[name], confirmed.Of(name)
		wanted, selected := w.wanted[name]
		want := plan.Off
		if selected && wanted.serves() {
			want = plan.On
		}
		if want == plan.On && state == plan.On {
			w.compareOn(name, wanted, actual)
		}
		// An employee that should take traffic and does not exist yet permits no operation.
		if want == plan.Off && state == plan.Off && (actual.On || actual.Sessions > 0) {
			w.t.Errorf("the traffic of %s is confirmed as off, and is not: the provider has %+v", name, actual)
		}
		settled = settled && state == want
	}
	return settled, nil
}

// compareOn compares a confirmation that traffic is on with the provider.
func (w *scenario) compareOn(name string, wanted Employee, actual Traffic) {
	w.t.Helper()
	if !actual.On {
		w.t.Errorf("the traffic of %s is confirmed as on, and is not: the provider has %+v", name, actual)
	}
	if actual.Address != "" && wanted.Address != "" && actual.Address != wanted.Address {
		w.t.Errorf("the traffic of %s is confirmed as on, and goes to %s instead of %s", name, actual.Address, wanted.Address)
	}
	if wanted.Weight > 0 && actual.Weight != wanted.Weight {
		w.t.Errorf("the traffic of %s is confirmed as on, with weight %d instead of %d", name, actual.Weight, wanted.Weight)
	}
}
