package adaptertest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/pkg/resourceconsist"
)

// Config tells the suite about one adapter.
type Config struct {
	// New makes a world of its own for one case: an adapter, a cluster and a provider
	// that hold nothing yet. It cleans up through t.Cleanup. Required.
	New func(t testing.TB) Fixture
	// Ops are the operations of this adapter that reach its provider. An adapter whose
	// CreateEmployer does nothing leaves CreateEmployer out. ReadEmployees is required:
	// nobody may claim that traffic is off without asking.
	Ops []Op
	// Without names the kinds that this provider cannot be made to do, each with the
	// reason. Their cases are left out and the reasons logged; an empty reason is refused.
	Without map[Kind]string
	// Updated changes a serving employee in such a way that UpdateEmployees is called for
	// it. Nil: it is turned off. An adapter that deletes employees without traffic needs
	// another one: a changed address, a changed weight.
	Updated func(Employee) Employee
	// Addresses are what employees get as addresses, in order; at least four different
	// ones. Nil: addresses of 192.0.2.0/24, where nobody listens.
	Addresses []string
	// Passes is how many reconciles may go by until everything is as wanted. Zero: 10.
	Passes int
	// Deadline bounds a call of the adapter. Zero: 10 s.
	Deadline time.Duration
	// FaultDeadline bounds a call while the provider hangs or throttles: the suite waits
	// that long for each of them. Zero: 200 ms.
	FaultDeadline time.Duration
	// Grace is how long a call may go on beyond its deadline. Zero: 2 s.
	Grace time.Duration
}

// Fixture is the world of one case.
type Fixture struct {
	Adapter  resourceconsist.ReconcileAdapter
	Cluster  Cluster
	Provider Provider
}

// Employee is what a case wants of one employee. The zero value, with a name and an
// address, serves.
type Employee struct {
	Name string
	// Address is empty for a pod that has none yet; such a one is always Off.
	Address string
	// Off wants its traffic off: an operation is being prepared.
	Off bool
	// Terminating marks it as being deleted, which wants its traffic off as well.
	Terminating bool
	// Weight is its share of the requests. Zero: whatever the adapter takes by default.
	Weight int
}

func (e Employee) serves() bool { return !e.Off && !e.Terminating }

// Cluster is the side of Kubernetes. ServiceCluster is one for Services and Pods.
type Cluster interface {
	// Employ lets the employer exist and select exactly these employees, whatever was
	// before; those that it no longer selects are gone.
	Employ(t testing.TB, employer string, employees ...Employee)
	// Dismiss marks the employer as being deleted. Its employees go on to exist.
	Dismiss(t testing.TB, employer string)
	// Employer is the employer as the API server has it now.
	Employer(t testing.TB, employer string) client.Object
}

// EmployerChanger is a Cluster that can change what the provider should have for the
// employer itself, such as a port. It is needed when Config.Ops has UpdateEmployer.
type EmployerChanger interface {
	Change(t testing.TB, employer string)
}

// Traffic is what truly happens to the traffic of one employee.
type Traffic struct {
	// On says that new requests go there.
	On bool
	// Sessions are the requests that are still open there.
	Sessions int
	// Weight is compared only with Employee.Weight above zero.
	Weight int
	// Address is where requests go; empty when the provider cannot tell.
	Address string
}

// Provider is the side of the load balancer: the truth, and what can go wrong.
type Provider interface {
	// Traffic is the truth by the names of employees, past every fault. Who is missing
	// has no traffic and no sessions.
	Traffic(t testing.TB, employer string) map[string]Traffic
	// Remains names what the provider holds for the employer, in any order.
	Remains(t testing.TB, employer string) []string
	// Inject lets the provider misbehave from now on, and Mend ends all of it. A request
	// that hangs is answered then.
	Inject(t testing.TB, fault Fault)
	Mend(t testing.TB)
	// Settle returns when everything has happened that happens by itself: lags have run
	// out, checks have passed, whoever else manages the provider has acted. It does not
	// end sessions.
	Settle(t testing.TB)
}

// Occupier is a Provider with sessions. Without[Sessions] goes without it.
type Occupier interface {
	// Occupy keeps that many sessions open at an employee; 0 ends them.
	Occupy(t testing.TB, employer, employee string, sessions int)
	// Cut is how many sessions the provider has broken so far.
	Cut(t testing.TB) int
}

// Counter is a Provider that counts the requests it gets, refused ones included. It is
// optional; with it the suite sees who hammers a provider that throttles.
type Counter interface {
	Calls(t testing.TB) int
}

// complete returns the Config with its defaults, or what is wrong with it.
func (c Config) complete() (Config, error) {
	if c.New == nil {
		return c, fmt.Errorf("Config.New is nil: it makes the adapter, the cluster and the provider of a case")
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
			return c, fmt.Errorf("Config.Without[%q] has no reason: say why the provider cannot be made to do it", kind)
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

// has says whether a case that needs these kinds and operations can run.
func (c Config) has(needs []Kind, op Op) bool {
	if op != "" && !slices.Contains(c.Ops, op) {
		return false
	}
	return !slices.ContainsFunc(needs, func(kind Kind) bool { _, without := c.Without[kind]; return without })
}
