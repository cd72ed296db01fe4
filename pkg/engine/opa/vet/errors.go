package vet

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Problem is one error of the Rego compiler.
type Problem struct {
	// File is empty for the module itself, the file of the part for an imported module, and a path below policies for a
	// module of PodOps' library.
	File string

	// Row and Column start at 1; 0 when the problem has no place.
	Row, Column int

	// Code is OPA's code for the kind of error, "rego_type_error" for example.
	Code    string
	Message string
}

// locate sets the place of a problem; nil is no place.
func (p *Problem) locate(place *ast.Location) {
	if place == nil {
		return
	}
	p.File, p.Row, p.Column = place.File, place.Row, place.Col
	if p.File == File {
		p.File = ""
	}
}

// CompileError lists why a module cannot be used. A retry does not help: the module has to change.
type CompileError struct {
	// Problems in the order in which the compiler found them; at least one.
	Problems []Problem
}

// Error returns all problems, each as "row:column: code: message".
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

// AsCompileError converts an error of OPA's parser or compiler.
func AsCompileError(err error) error {
	list := ast.Errors{}
	if one := (*ast.Error)(nil); errors.As(err, &one) {
		list = ast.Errors{one}
	} else if !errors.As(err, &list) || len(list) == 0 {
		return err
	}
	problems := make([]Problem, 0, len(list))
	for _, one := range list {
		problem := Problem{Code: one.Code, Message: one.Message + choices(one) + mismatchedTypes(one) + undefinedBuiltin(one) + hint(one)}
		problem.locate(one.Location)
		problems = append(problems, problem)
	}
	return &CompileError{Problems: problems}
}

// maxChoices is how many field names a problem lists.
const maxChoices = 20

// choices returns the existing fields, where a module reads a field that does not exist.
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
	return fmt.Sprintf("; existing fields: %s%s", strings.Join(names, ", "), more)
}

// mismatchedTypes returns both types where a call or a comparison has types that do not match.
func mismatchedTypes(err *ast.Error) string {
	var detail ast.ErrorDetails
	switch err.Details.(type) {
	case *ast.ArgErrDetail, *ast.UnificationErrDetail:
		detail = err.Details
	default:
		return ""
	}
	lines := make([]string, 0, len(detail.Lines()))
	for _, line := range detail.Lines() {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return "; " + strings.Join(lines, ", ")
}

// hint returns how to correct a mistake that OPA's message does not explain.
func hint(err *ast.Error) string {
	for _, known := range []struct{ part, hint string }{
		{"keyword is required before rule body", v0Hint},
		{"keyword is required for partial set rules", v0Hint},
	} {
		if strings.Contains(err.Message, known.part) {
			return known.hint
		}
	}
	if name, ok := strings.CutSuffix(strings.TrimPrefix(err.Message, "var "), " is unsafe"); ok && err.Location != nil {
		return keyHint(string(err.Location.Text), name)
	}
	return ""
}

// keyHint returns how to write a key that ends with a name in an expression: after a dot, "-" and "/" are operators.
func keyHint(expression, name string) string {
	written := regexp.MustCompile(`\w[\w.]*(?:[-/][\w.]+)*?[-/]` + regexp.QuoteMeta(name) + `\b(?:[-/.]\w+)*`).FindString(expression)
	object, key, ok := strings.Cut(written, ".")
	for _, known := range []string{"labels", "annotations", "conditions", "parameters", "requests", "limits"} {
		if at := strings.LastIndex(written, "."+known+"."); at >= 0 {
			at += len(known) + 1
			object, key = written[:at], written[at+1:]
		} else if rest, isFirst := strings.CutPrefix(written, known+"."); isFirst {
			object, key = known, rest
		}
	}
	if !ok {
		return ""
	}
	return fmt.Sprintf(`; a key with "/" or "-" is written in brackets: %s[%q]`, object, key)
}

const v0Hint = "; this is the syntax of OPA v0, which opa fmt --v0-v1 rewrites"
