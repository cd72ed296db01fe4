package adaptertest

import "slices"

// Op is an operation of an adapter at its provider. Each Op belongs to one method of the
// adapter; a fault of an Op applies to the requests that this method sends.
type Op string

// The operations and their methods.
const (
	ReadEmployer    Op = "read-employer"    // GetCurrentEmployer
	CreateEmployer  Op = "create-employer"  // CreateEmployer
	UpdateEmployer  Op = "update-employer"  // UpdateEmployer
	DeleteEmployer  Op = "delete-employer"  // DeleteEmployer
	ReadEmployees   Op = "read-employees"   // GetCurrentEmployee
	CreateEmployees Op = "create-employees" // CreateEmployees
	UpdateEmployees Op = "update-employees" // UpdateEmployees
	DeleteEmployees Op = "delete-employees" // DeleteEmployees
)

// Kind is a kind of fault, or a feature that not every provider has.
type Kind string

// The kinds. Fail, FailOne, LostReply and Hang apply to one Op; the others apply to the
// whole provider.
const (
	// Fail rejects every request of the Op and changes nothing.
	Fail Kind = "fail"
	// FailOne rejects the requests of the Op that concern one employee.
	FailOne Kind = "fail-one"
	// LostReply carries a request out and answers with an error.
	LostReply Kind = "lost-reply"
	// Hang does nothing and answers nothing until Mend.
	Hang Kind = "hang"
	// LateEffect accepts changes, which take effect later. Reads return the state in
	// effect.
	LateEffect Kind = "late-effect"
	// StaleReads makes reads return the state from before the fault. Changes take effect at
	// once.
	StaleReads Kind = "stale-reads"
	// Restart loses the whole state of the provider, once. Mend has no effect on it.
	Restart Kind = "restart"
	// Throttle rejects every request because of its rate limit.
	Throttle Kind = "throttle"
	// Sessions is no fault: the provider has sessions that stay open (see Occupier).
	Sessions Kind = "sessions"
	// Weights is no fault: the provider shares out requests by weight.
	Weights Kind = "weights"
	// Neighbours is no fault: the provider serves a second employer too.
	Neighbours Kind = "neighbours"
	// Foreign is no fault: others have entries of their own at the provider (see Sharer).
	Foreign Kind = "foreign"
	// RetryAfter is no fault: the answer under Throttle is known to be a limit, as the status 429 is.
	RetryAfter Kind = "retry-after"
	// Moves is no fault: an attribute of all employees that serve can change, such as their port
	// (see Mover and Watcher).
	Moves Kind = "moves"
)

// kinds returns every kind, in the order of the report.
func kinds() []Kind {
	return []Kind{Fail, FailOne, LostReply, Hang, LateEffect, StaleReads, Restart, Throttle, Sessions, Weights, Neighbours, Foreign, RetryAfter, Moves}
}

// Fault is the argument of Provider.Inject.
type Fault struct {
	Kind Kind
	// Op is the operation that the fault applies to; empty for the kinds that apply to the
	// whole provider.
	Op Op
	// Employee is the name of the employee that FailOne applies to.
	Employee string
}

// strikes reports whether the fault applies to a request of an operation that concerns an
// employee.
func (f Fault) strikes(op Op, employee string) bool {
	switch f.Kind {
	case Fail, LostReply, Hang:
		return f.Op == op
	case FailOne:
		return f.Op == op && f.Employee == employee
	case Throttle:
		return true
	default:
		return false
	}
}

// struck returns the first fault of these kinds that applies to the request.
func struck(faults []Fault, op Op, employee string, of ...Kind) (Kind, bool) {
	for _, fault := range faults {
		if slices.Contains(of, fault.Kind) && fault.strikes(op, employee) {
			return fault.Kind, true
		}
	}
	return "", false
}
