package opa

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// ErrUndefined is returned by Evaluate when a rule gives no decision at all, for lack of a fact
// that it needs for the whole batch.
var ErrUndefined = errors.New("the rule gives no decision")

// ErrTimeout says that a user's module was not done at its deadline, or was not asked because an
// earlier evaluation of it has not ended since its own.
var ErrTimeout = errors.New("the module did not answer in time")

// Problem is one error of the Rego compiler.
type Problem struct {
	// File is empty for the module itself, and a path below policies for a library module.
	File string

	// Row and Column start at 1; 0 when the problem has no place.
	Row, Column int

	// Code is OPA's word for the kind of error, "rego_type_error" for one.
	Code    string
	Message string
}

// CompileError says why a module cannot be used. No retry helps: the module has to change.
type CompileError struct {
	// Problems in the order in which the compiler found them; at least one.
	Problems []Problem
}

// Error is all problems, each as "row:column: code: message".
func (e *CompileError) Error() string {
	lines := make([]string, 0, len(e.Problems))
	for _, problem := range e.Problems {
		place := fmt.Sprintf("%d:%d", problem.Row, problem.Column)
		if problem.File != "" {
			place = problem.File + ":" + place
		}
		lines = append(lines, fmt.Sprintf("%s: %s: %s", place, problem.Code, problem.Message))
	}
	return strings.Join(lines, "; ")
}

// compileError translates what OPA's parser or compiler returned.
func compileError(err error) error {
	list := ast.Errors{}
	if one := (*ast.Error)(nil); errors.As(err, &one) {
		list = ast.Errors{one}
	} else if !errors.As(err, &list) || len(list) == 0 {
		return err
	}
	problems := make([]Problem, 0, len(list))
	for _, one := range list {
		problem := Problem{Code: one.Code, Message: one.Message + choices(one) + argumentTypes(one) + hint(one)}
		if one.Location != nil {
			problem.Row, problem.Column = one.Location.Row, one.Location.Col
			problem.File = one.Location.File
		}
		if problem.File == moduleFile {
			problem.File = ""
		}
		problems = append(problems, problem)
	}
	return &CompileError{Problems: problems}
}

// maxChoices is how many names of fields a problem lists.
const maxChoices = 20

// choices are the fields that there are, in words, where a module reads one that there is not.
func choices(err *ast.Error) string {
	detail, ok := err.Details.(*ast.RefErrInvalidDetail)
	if !ok || len(detail.OneOf) == 0 {
		return ""
	}
	names := make([]string, 0, len(detail.OneOf))
	for _, value := range detail.OneOf {
		if name, ok := value.(ast.String); ok {
			names = append(names, string(name))
		}
	}
	slices.Sort(names)
	more := ""
	if len(names) > maxChoices {
		names, more = names[:maxChoices], ", ..."
	}
	return fmt.Sprintf("; there is: %s%s", strings.Join(names, ", "), more)
}

// argumentTypes are the types of the arguments that a call has and wants, when it is wrong about them.
func argumentTypes(err *ast.Error) string {
	detail, ok := err.Details.(*ast.ArgErrDetail)
	if !ok {
		return ""
	}
	lines := make([]string, 0, len(detail.Lines()))
	for _, line := range detail.Lines() {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return "; " + strings.Join(lines, ", ")
}

// hint is the way out of a mistake that OPA names without one.
func hint(err *ast.Error) string {
	const noNetwork = "; it is not available to rules, which reach no network: docs/sandbox.md"
	for _, known := range []struct{ part, hint string }{
		{"undefined function http.", noNetwork},
		{"undefined function net.lookup", noNetwork},
		{"undefined function time.now_ns", "; it is not available to rules: the time is input.now"},
		{"keyword is required before rule body", v0Hint},
		{"keyword is required for partial set rules", v0Hint},
	} {
		if strings.Contains(err.Message, known.part) {
			return known.hint
		}
	}
	return ""
}

const v0Hint = "; this is the syntax of OPA v0, which opa fmt --v0-v1 rewrites"

// PanicError is a panic of the engine, turned into an error at the boundary of this package.
type PanicError struct {
	Value any

	// Stack of the goroutine that panicked, for the log.
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic in the policy engine: %v", e.Value) }
