package adaptertest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/pkg/resourceconsist"
)

// scenario is one running case: the fixture, the wanted state, and the observations.
type scenario struct {
	Fixture
	t        testing.TB
	cfg      Config
	employer string
	// limit bounds a call of the adapter.
	limit     time.Duration
	dismissed bool
	// wanted holds the employees that the employer selects, by name; known names all employees that
	// it has ever selected.
	wanted map[string]Employee
	known  map[string]bool
	// outcomes holds the outcome of every verb call.
	outcomes []outcome
}

func newScenario(t testing.TB, cfg Config) *scenario {
	t.Helper()
	fixture := cfg.New(t)
	if fixture.Adapter == nil || fixture.Cluster == nil || fixture.Provider == nil {
		t.Fatalf("Config.New returned a fixture without an adapter, a cluster or a provider")
	}
	return &scenario{
		Fixture: fixture, t: t, cfg: cfg, employer: "web", limit: cfg.Deadline,
		wanted: map[string]Employee{}, known: map[string]bool{},
	}
}

// beside returns the scenario of another employer at the same provider.
func (w *scenario) beside(employer string) *scenario {
	other := *w
	other.employer, other.outcomes = employer, nil
	other.wanted, other.known = map[string]Employee{}, map[string]bool{}
	return &other
}

// serving returns n employees that should take traffic: web-0, web-1, ...
func (w *scenario) serving(n int) []Employee {
	employees := make([]Employee, n)
	for i := range employees {
		employees[i] = Employee{Name: fmt.Sprintf("%s-%d", w.employer, i), Address: w.cfg.Addresses[i]}
	}
	return employees
}

// want makes the employer select exactly these employees.
func (w *scenario) want(employees ...Employee) {
	w.t.Helper()
	w.Cluster.Employ(w.t, w.employer, employees...)
	clear(w.wanted)
	for _, employee := range employees {
		w.wanted[employee.Name] = employee
		w.known[employee.Name] = true
	}
}

// dismiss deletes the employer.
func (w *scenario) dismiss() {
	w.t.Helper()
	w.Cluster.Dismiss(w.t, w.employer)
	w.dismissed = true
	clear(w.wanted)
}

func (w *scenario) object() client.Object {
	w.t.Helper()
	return w.Cluster.Employer(w.t, w.employer)
}

// names returns the names of all employees that were ever selected, sorted.
func (w *scenario) names() []string { return slices.Sorted(maps.Keys(w.known)) }

// within calls the adapter with a deadline, and ends the case when the call outlives it. A
// panic of the adapter fails the case, not the test binary.
func (w *scenario) within(what string, call func(ctx context.Context)) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), w.limit)
	defer cancel()
	done := make(chan any, 1)
	go func() {
		defer func() { done <- recover() }()
		call(ctx)
	}()
	if panicked, returned := await(done, w.limit+w.cfg.Grace); returned {
		if panicked != nil {
			w.t.Fatalf("%s panicked: %v", what, panicked)
		}
		return
	}
	w.Provider.Mend(w.t) // so that the call ends, and with it its goroutine
	await(done, w.cfg.Grace)
	w.t.Fatalf("%s did not return: its context ended after %v and it went on for %v. Pass the context on to the provider.", what, w.limit, w.cfg.Grace)
}

func await(done <-chan any, limit time.Duration) (value any, returned bool) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case value = <-done:
		return value, true
	case <-timer.C:
		return nil, false
	}
}

// picture holds everything that the adapter returns for an employer.
type picture struct {
	selected                            []string
	expectedEmployers, currentEmployers []resourceconsist.IEmployer
	expected, current                   []resourceconsist.IEmployee
}

// read calls every read of the adapter. The error names the method that failed.
func (w *scenario) read() (picture, error) {
	w.t.Helper()
	var p picture
	var err error
	object := w.object()
	gather := func(method string, call func(ctx context.Context) error) {
		if err != nil {
			return
		}
		w.within(method, func(ctx context.Context) { err = call(ctx) })
		if err != nil {
			err = fmt.Errorf("%s: %w", method, err)
		}
	}
	if !w.dismissed { // nothing is expected of an employer that is being deleted
		gather("GetSelectedEmployeeNames", func(ctx context.Context) (err error) {
			p.selected, err = w.Adapter.GetSelectedEmployeeNames(ctx, object)
			return err
		})
		gather("GetExpectedEmployer", func(ctx context.Context) (err error) {
			p.expectedEmployers, err = w.Adapter.GetExpectedEmployer(ctx, object)
			return err
		})
		gather("GetExpectedEmployee", func(ctx context.Context) (err error) {
			p.expected, err = w.Adapter.GetExpectedEmployee(ctx, object)
			return err
		})
	}
	gather("GetCurrentEmployer", func(ctx context.Context) (err error) {
		p.currentEmployers, err = w.Adapter.GetCurrentEmployer(ctx, object)
		return err
	})
	gather("GetCurrentEmployee", func(ctx context.Context) (err error) {
		p.current, err = w.Adapter.GetCurrentEmployee(ctx, object)
		return err
	})
	return p, err
}
