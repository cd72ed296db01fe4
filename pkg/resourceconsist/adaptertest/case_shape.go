package adaptertest

import (
	"context"
	"slices"

	"github.com/podops-dev/podops/pkg/resourceconsist"
)

func shapeCases() []caseSpec {
	return []caseSpec{
		{name: "ids", property: "ids are unique and stable, and pods without an address have ids of their own", run: ids},
		{name: "selection", property: "exactly the selected employees are named and expected; an empty selector selects none", run: selection},
		{name: "equal", property: "equality is symmetric and reflexive, and a foreign type is not equal and causes no panic", run: equal},
		{name: "steady", property: "a reconcile of an unchanged employer changes nothing, and verbs without items do nothing", run: steady},
	}
}

func ids(w *scenario) {
	w.want(append(w.serving(2), Employee{Name: "web-2", Off: true}, Employee{Name: "web-3", Off: true})...)
	first, second := w.mustRead(), w.mustRead()
	id := resourceconsist.IEmployee.GetEmployeeId
	wantUnique(w, "expected", collectIDs(first.expected, id))
	if a, b := collectIDs(first.expected, id), collectIDs(second.expected, id); !slices.Equal(a, b) {
		w.t.Errorf("the ids of expected employees changed from one call to the next: %q, then %q", a, b)
	}
	w.converge("two employees serve, two have no address yet")
	p := w.mustRead()
	wantUnique(w, "current", collectIDs(p.current, id))
	employer := resourceconsist.IEmployer.GetEmployerId
	wantUnique(w, "expected employer", collectIDs(p.expectedEmployers, employer))
	wantUnique(w, "current employer", collectIDs(p.currentEmployers, employer))
}

func wantUnique(w *scenario, what string, ids []string) {
	w.t.Helper()
	if slices.Contains(ids, "") {
		w.t.Errorf("an %s id is empty: %q", what, ids)
	}
	if len(slices.Compact(slices.Clone(ids))) != len(ids) {
		w.t.Errorf("%s ids are not unique: %q", what, ids)
	}
}

func selection(w *scenario) {
	other := w.beside("api")
	other.want(other.serving(1)...)
	w.want(w.serving(3)...)
	w.wantSelected("web-0", "web-1", "web-2")
	w.want(w.serving(1)...)
	w.wantSelected("web-0")
	w.want()
	w.wantSelected()
}

func (w *scenario) wantSelected(names ...string) {
	w.t.Helper()
	p := w.mustRead()
	if got := slices.Sorted(slices.Values(p.selected)); !slices.Equal(got, names) {
		w.t.Errorf("GetSelectedEmployeeNames: %q, want %q", got, names)
	}
	if got := collectIDs(p.expected, resourceconsist.IEmployee.GetEmployeeName); !slices.Equal(got, names) {
		w.t.Errorf("GetExpectedEmployee names %q, want %q", got, names)
	}
}

// foreign implements IEmployer and IEmployee, and belongs to no adapter.
type foreign struct{}

func (foreign) GetEmployerId() string                                 { return "stranger" } //nolint:staticcheck // the name is the interface's
func (foreign) GetEmployerStatuses() any                              { return struct{}{} }
func (foreign) EmployerEqual(resourceconsist.IEmployer) (bool, error) { return false, nil }
func (foreign) GetEmployeeId() string                                 { return "stranger" } //nolint:staticcheck // the name is the interface's
func (foreign) GetEmployeeName() string                               { return "stranger" }
func (foreign) GetEmployeeStatuses() any                              { return struct{}{} }
func (foreign) EmployeeEqual(resourceconsist.IEmployee) (bool, error) { return false, nil }

func equal(w *scenario) {
	employees := w.serving(3)
	w.want(employees...)
	w.converge("three employees serve")
	employees[0].Off = true
	w.want(employees...)
	p := w.mustRead() // one item differs between the expected and the current items
	wantSymmetric(w, "EmployeeEqual", slices.Concat(p.expected, p.current),
		resourceconsist.IEmployee.GetEmployeeId, resourceconsist.IEmployee.EmployeeEqual)
	wantSymmetric(w, "EmployerEqual", slices.Concat(p.expectedEmployers, p.currentEmployers),
		resourceconsist.IEmployer.GetEmployerId, resourceconsist.IEmployer.EmployerEqual)
	for _, e := range p.expected {
		w.wantForeign("EmployeeEqual", func() (bool, error) { return e.EmployeeEqual(foreign{}) })
		w.wantForeign("EmployeeEqual", func() (bool, error) { return e.EmployeeEqual(nil) })
	}
	for _, e := range p.expectedEmployers {
		w.wantForeign("EmployerEqual", func() (bool, error) { return e.EmployerEqual(foreign{}) })
		w.wantForeign("EmployerEqual", func() (bool, error) { return e.EmployerEqual(nil) })
	}
}

func wantSymmetric[T any](w *scenario, method string, all []T, id func(T) string, equal func(a, b T) (bool, error)) {
	w.t.Helper()
	for i, a := range all {
		for j, b := range all {
			ab, err := equal(a, b)
			ba, back := equal(b, a)
			switch {
			case err != nil || back != nil:
				w.t.Errorf("%s of %q and %q: %v, %v", method, id(a), id(b), err, back)
			case i == j && !ab:
				w.t.Errorf("%s: %q is not equal to itself", method, id(a))
			case ab != ba:
				w.t.Errorf("%s is not symmetric: %q and %q: %v, the other way round: %v", method, id(a), id(b), ab, ba)
			}
		}
	}
}

// wantForeign expects false or an error.
func (w *scenario) wantForeign(method string, call func() (bool, error)) {
	w.t.Helper()
	var same bool
	w.within(method+" with a foreign type", func(context.Context) { same, _ = call() })
	if same {
		w.t.Errorf("%s returns that a foreign type is equal", method)
	}
}

func steady(w *scenario) {
	employees := w.serving(2)
	employees[1].Off = true
	w.want(employees...)
	w.converge("one employee serves, one is off")
	before := len(w.outcomes)
	w.passes(2)
	if extra := w.outcomes[before:]; len(extra) > 0 {
		w.t.Errorf("the state was as wanted, and a reconcile called: %v", extra)
	}
	for _, op := range []Op{CreateEmployer, UpdateEmployer, DeleteEmployer} {
		do(w, w.employerVerb(op), nil)
	}
	for _, op := range []Op{CreateEmployees, UpdateEmployees, DeleteEmployees} {
		do(w, w.employeeVerb(op), nil)
	}
	w.converge("everything is still as wanted")
}

// mustRead reads the state, and ends the case on an error.
func (w *scenario) mustRead() picture {
	w.t.Helper()
	p, err := w.read()
	if err != nil {
		w.t.Fatalf("reading: %v", err)
	}
	return p
}
