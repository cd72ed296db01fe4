package rule

// Exception is why a request passes a rule that withholds it.
type Exception string

// The exceptions.
const (
	// ExceptionBreakGlass means that the pod, its namespace or the namespace of the manager has the
	// break-glass annotation.
	ExceptionBreakGlass Exception = "BreakGlass"

	// ExceptionMaxHold means that the pod has waited for as long as it may.
	ExceptionMaxHold Exception = "MaxHold"

	// ExceptionRevision means that the rule exempts pods of revisions that their workload replaces.
	ExceptionRevision Exception = "Revision"
)

// Exceptions returns all exceptions.
func Exceptions() []Exception {
	return []Exception{ExceptionBreakGlass, ExceptionMaxHold, ExceptionRevision}
}

// Waiver is a rule that a request passes although the rule withholds it.
type Waiver struct {
	Rule RuleID

	// Code is why the rule withholds the request.
	Code Code

	Exception Exception

	// Reason is the text of the exception.
	Reason string
}
