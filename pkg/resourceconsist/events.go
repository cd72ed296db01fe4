package resourceconsist

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/podops-dev/podops/pkg/runtime/text"
)

// Event reasons of employers, as in KusionStack. They never change.
const (
	EventEnsureCleanFinalizerFailed  = "EnsureEmployerCleanFinalizerFailed"
	EventEnsureCleanFinalizerSucceed = "EnsureEmployerCleanFinalizerSucceed"
	EventEnsureExpectedFailed        = "EnsureExpectedFinalizerFailed"
	EventGetExpectedEmployerFailed   = "GetExpectedEmployerFailed"
	EventGetCurrentEmployerFailed    = "GetCurrentEmployerFailed"
	EventSyncEmployerFailed          = "SyncEmployerFailed"
	EventGetExpectedEmployeesFailed  = "GetExpectedEmployeesFailed"
	EventGetCurrentEmployeesFailed   = "GetCurrentEmployeesFailed"
	EventSyncEmployeesFailed         = "SyncEmployeesFailed"
	EventCleanFailed                 = "CleanEmployerCleanFinalizerFailed"
	EventCleanSucceed                = "CleanEmployerCleanFinalizerSucceed"
	EventRecordStatusesFailed        = "RecordStatusesFailed"
	EventRecordErrorsFailed          = "RecordErrorConditionsFailed"
)

const (
	// maxNamed is the number of employees, and maxText the number of bytes of the error of
	// each, in a human-readable message; maxNote is the number of bytes that the API server
	// accepts in the note of an event.
	maxNamed = 10
	maxText  = 200
	maxNote  = 1000
)

// problem is the error of one reconcile step, under the reason of its event.
type problem struct {
	reason string
	err    error
}

// EmployeeError is one employee, or one item of the employer itself, that failed.
type EmployeeError struct {
	// Name is the name of the employee; its id when the name is not known.
	Name string

	// Times is the number of times that it failed in a row; at least 1.
	Times int

	Err error

	reason string // reason of the event that names it
}

// SyncError is the error that StatusRecordOptions and events get for employees that failed.
type SyncError struct {
	// Employees holds all employees that failed, sorted by id.
	Employees []EmployeeError
}

// Error returns the names and errors of the first ten.
func (e *SyncError) Error() string {
	texts := make([]string, 0, maxNamed+1)
	for _, one := range e.Employees[:min(maxNamed, len(e.Employees))] {
		texts = append(texts, one.Name+": "+text.Cut(one.Err.Error(), maxText))
	}
	if more := len(e.Employees) - maxNamed; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("%d failed: %s", len(e.Employees), strings.Join(texts, "; "))
}

// Unwrap returns the errors of all employees.
func (e *SyncError) Unwrap() []error {
	errs := make([]error, len(e.Employees))
	for i, one := range e.Employees {
		errs[i] = one.Err
	}
	return errs
}

// recordEvents records an event for each problem that was not there before.
func (r *Reconciler) recordEvents(s *session) {
	now := map[string]bool{}
	for _, p := range s.problems {
		now[p.reason] = true
		if note := text.Cut(p.err.Error(), maxNote); s.history.isNewEvent(p.reason, note) {
			r.recorder.Eventf(s.employer, nil, corev1.EventTypeWarning, p.reason, "Reconcile", "%s", note)
		}
	}
	for reason := range s.history.lastEvents {
		if !now[reason] {
			delete(s.history.lastEvents, reason)
		}
	}
}
