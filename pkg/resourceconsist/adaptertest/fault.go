package adaptertest

import "slices"

// Op is what an adapter does at its provider. Each Op belongs to one method of the
// adapter; a fault that strikes an Op strikes the requests which that method sends.
type Op string

// The operations, with the method each belongs to.
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

// Kind is a way in which a provider misbehaves, or something else that not every
// provider can be made to do.
type Kind string

// The kinds. Fail, FailOne, LostReply and Hang strike one Op; the others strike the
// whole provider.
const (
	// Fail refuses every request of the Op and changes nothing.
	Fail Kind = "fail"
	// FailOne refuses the requests of the Op that concern one employee.
	FailOne Kind = "fail-one"
	// LostReply does what it is asked and answers with an error.
	LostReply Kind = "lost-reply"
	// Hang does nothing and answers nothing until it is mended.
	Hang Kind = "hang"
	// LateEffect accepts changes, which come into force later. Reads tell what is in
	// force.
	LateEffect Kind = "late-effect"
	// StaleReads lets reads answer what was true before the fault. Changes are in force
	// at once.
	StaleReads Kind = "stale-reads"
	// Restart loses everything that the provider was told, once. Nothing is left to mend.
	Restart Kind = "restart"
	// Throttle refuses every request because there were too many.
	Throttle Kind = "throttle"
	// Sessions is no fault: the provider has sessions that stay open (see Occupier).
	Sessions Kind = "sessions"
	// Weights is no fault: the provider shares out requests by weight.
	Weights Kind = "weights"
	// Neighbours is no fault: the provider serves a second employer beside the first.
	Neighbours Kind = "neighbours"
)

// kinds is every kind, in the order in which a reader of a report wants them.
func kinds() []Kind {
	return []Kind{Fail, FailOne, LostReply, Hang, LateEffect, StaleReads, Restart, Throttle, Sessions, Weights, Neighbours}
}

// Fault is what Provider.Inject is asked for.
type Fault struct {
	Kind Kind
	// Op is what it strikes; empty for the kinds that strike the whole provider.
	Op Op
	// Employee is the name of the employee that FailOne strikes.
	Employee string
}

// strikes says whether a request of an operation that concerns an employee is struck.
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

// struck is the first of the faults that has one of the kinds and strikes the request.
func struck(faults []Fault, op Op, employee string, of ...Kind) (Kind, bool) {
	for _, fault := range faults {
		if slices.Contains(of, fault.Kind) && fault.strikes(op, employee) {
			return fault.Kind, true
		}
	}
	return "", false
}
