package command

import "errors"

// Exit codes of the plugin. Scripts rely on them.
const (
	// ExitDone is the exit code of a verb that did its work.
	ExitDone = 0

	// ExitFailed is the exit code of a verb that could not do its work: wrong arguments, an unreadable
	// file, an API server that does not answer or refuses.
	ExitFailed = 1

	// ExitFindings is the exit code of a verb that did its work and found something: a failed test, an
	// invalid rule, a misconfiguration, a verdict that differs.
	ExitFindings = 2
)

// Findings is the error of a verb that ends with ExitFindings. The verb has printed its findings;
// Summary is a last line for standard error, which may be empty.
type Findings struct{ Summary string }

// Error returns the summary.
func (f *Findings) Error() string { return f.Summary }

// ExitCode returns the exit code for the error that a verb returned.
func ExitCode(err error) int {
	switch findings := (*Findings)(nil); {
	case err == nil:
		return ExitDone
	case errors.As(err, &findings):
		return ExitFindings
	default:
		return ExitFailed
	}
}
