package adaptertest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/pkg/resourceconsist"
)

// Config describes one adapter to the suite.
type Config struct {
	// New returns the fixture of one case: an adapter, a cluster and a provider that hold
	// nothing yet. It cleans up through t.Cleanup. Required.
	New func(t testing.TB) Fixture
	// Ops are the operations of this adapter that reach its provider. An adapter whose
	// CreateEmployer does nothing leaves CreateEmployer out. ReadEmployees is required:
	// only a read can confirm that traffic is off.
	Ops []Op
	// Without maps the kinds that this provider does not support to the reason. Their cases
	// are left out and the reasons logged; an empty reason is rejected.
	Without map[Kind]string
	// Updated changes an employee with traffic in such a way that UpdateEmployees is called
	// for it. Nil: it is turned off. An adapter that deletes employees without traffic
	// needs another change: an address, a weight.
	Updated func(Employee) Employee
	// Addresses are the addresses of employees, in order; at least four different addresses. Nil:
	// addresses of 192.0.2.0/24, where nothing listens.
	Addresses []string
	// Passes is the maximum number of reconciles until the state is as wanted. Zero: 10.
	Passes int
	// Deadline bounds a call of the adapter. Zero: 10 s.
	Deadline time.Duration
	// FaultDeadline bounds a call while the provider hangs or throttles: the suite waits
	// that long for each of them. Zero: 200 ms.
	FaultDeadline time.Duration
	// Grace is the time for which a call may continue beyond its deadline. Zero: 2 s.
	Grace time.Duration
}

// Fixture holds the parts of one case.
type Fixture struct {
	Adapter  resourceconsist.ReconcileAdapter
	Cluster  Cluster
	Provider Provider
}

// Employee is the wanted state of one employee. The zero value, with a name and an address,
// should take traffic.
type Employee struct {
	Name string
	// Address is empty for a pod without an address; such an employee is always Off.
	Address string
	// Off means that its traffic should be off: an operation is being prepared.
	Off bool
	// Terminating means that it is being deleted, so that its traffic should be off as
	// well.
	Terminating bool
	// Weight is its share of the requests. Zero: the default of the adapter.
	Weight int
}

func (e Employee) serves() bool { return !e.Off && !e.Terminating }

// Cluster is the Kubernetes side of a case. ServiceCluster implements it for Services and
// Pods.
type Cluster interface {
	// Employ creates the employer if necessary and makes it select exactly these employees;
	// it removes employees that are no longer selected.
	Employ(t testing.TB, employer string, employees ...Employee)
	// Dismiss deletes the employer, which stays terminating. Its employees stay.
	Dismiss(t testing.TB, employer string)
	// Employer returns the employer as the API server has it.
	Employer(t testing.TB, employer string) client.Object
}

// EmployerChanger is a Cluster that can change the expected items of the employer itself,
// such as a port. It is required when Config.Ops has UpdateEmployer.
type EmployerChanger interface {
	Change(t testing.TB, employer string)
}

// Mover is a Cluster that can change an attribute, for each employee of an employer, while they
// serve, such as their port. It is not required with Without[Moves].
type Mover interface {
	Move(t testing.TB, employer string)
}

// Traffic is the actual traffic of one employee.
type Traffic struct {
	// On is true when new requests go there.
	On bool
	// Sessions is the number of requests that are still open there.
	Sessions int
	// Weight is compared only with Employee.Weight above zero.
	Weight int
	// Address is where requests go; empty when the provider does not report it.
	Address string
}

// Provider is the load balancer of a case: its actual state, and its faults.
type Provider interface {
	// Traffic returns the actual state by the names of employees, regardless of faults. An
	// employee that is missing has no traffic and no sessions.
	Traffic(t testing.TB, employer string) map[string]Traffic
	// Remains returns the names of the items that the provider holds for the employer, in
	// any order.
	Remains(t testing.TB, employer string) []string
	// Inject starts a fault, and Mend ends all faults. A request that hangs is answered
	// then.
	Inject(t testing.TB, fault Fault)
	Mend(t testing.TB)
	// Settle returns when all pending effects have occurred: lags have run out, checks have
	// passed, other controllers of the provider have acted. It does not end sessions.
	Settle(t testing.TB)
}

// Occupier is a Provider with sessions. It is not required with Without[Sessions].
type Occupier interface {
	// Occupy keeps the given number of sessions open at an employee; 0 ends them.
	Occupy(t testing.TB, employer, employee string, sessions int)
	// Cut returns the number of sessions that the provider has broken.
	Cut(t testing.TB) int
}

// Sharer is a Provider at which others have entries, too. It is not required with
// Without[Foreign].
type Sharer interface {
	// AddForeign adds an entry for another client where an employer has its entries, and
	// Foreign returns it as text; empty when it does not exist.
	AddForeign(t testing.TB, employer string)
	Foreign(t testing.TB, employer string) string
}

// Watcher is a Provider that sees each of its changes. It is not required with Without[Moves].
type Watcher interface {
	// Fewest returns the smallest number of employees with traffic after any change since the
	// last call of Fewest, or now.
	Fewest(t testing.TB, employer string) int
}

// Counter is a Provider that counts the requests it gets, including rejected requests. It is
// optional; with it the suite detects adapters that overload a provider that throttles.
type Counter interface {
	Calls(t testing.TB) int
}

// complete returns the Config with its defaults, or an error for an invalid Config.
func (c Config) complete() (Config, error) {
	if c.New == nil {
		return c, fmt.Errorf("Config.New is nil: it must return the adapter, the cluster and the provider of a case")
	}
	if !slices.Contains(c.Ops, ReadEmployees) {
		return c, fmt.Errorf("Config.Ops lacks %q: an adapter that never reads cannot confirm anything", ReadEmployees)
	}
	for _, op := range c.Ops {
		if !slices.Contains(everyOp(), op) {
			return c, fmt.Errorf("Config.Ops names %q; known are %q", op, everyOp())
		}
	}
	for kind, reason := range c.Without {
		if !slices.Contains(kinds(), kind) {
			return c, fmt.Errorf("Config.Without names %q; known are %q", kind, kinds())
		}
		if reason == "" {
			return c, fmt.Errorf("Config.Without[%q] has no reason: state why the provider does not support it", kind)
		}
	}
	if c.Addresses == nil {
		c.Addresses = []string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"}
	}
	if got := len(slices.Compact(slices.Sorted(slices.Values(c.Addresses)))); got < 4 {
		return c, fmt.Errorf("Config.Addresses has %d different addresses; the cases need 4", got)
	}
	if c.Updated == nil {
		c.Updated = func(e Employee) Employee { e.Off = true; return e }
	}
	if c.Passes == 0 {
		c.Passes = 10
	}
	for _, bound := range []struct {
		of    *time.Duration
		value time.Duration
	}{{&c.Deadline, 10 * time.Second}, {&c.FaultDeadline, 200 * time.Millisecond}, {&c.Grace, 2 * time.Second}} {
		if *bound.of == 0 {
			*bound.of = bound.value
		}
	}
	return c, nil
}

// has reports whether a case that needs these kinds and this operation can run.
func (c Config) has(needs []Kind, op Op) bool {
	if op != "" && !slices.Contains(c.Ops, op) {
		return false
	}
	return !slices.ContainsFunc(needs, func(kind Kind) bool { _, without := c.Without[kind]; return without })
}
