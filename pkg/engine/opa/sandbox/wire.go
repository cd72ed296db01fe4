package sandbox

import (
	"errors"
	"fmt"
	"slices"

	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/runtime/text"
)

const (
	// maxProblems bounds the problems, and the hints, that a worker reports for a module.
	maxProblems = 32

	// maxProblemBytes bounds each of them. Some messages of OPA grow with the module.
	maxProblemBytes = 1024
)

// response is the JSON document that a worker sends about a module that it has compiled.
type response struct {
	// Inspection is the result for a module without problems.
	Inspection opa.Inspection `json:"inspection"`

	// Problems are the problems of the module.
	Problems []opa.Problem `json:"problems,omitempty"`

	// Failure is an error that is not a problem of the module.
	Failure string `json:"failure,omitempty"`
}

// newResponse converts the result of opa.Inspect to a response.
func newResponse(inspected opa.Inspection, err error) response {
	found := &opa.CompileError{}
	switch {
	case err == nil:
		inspected.Hints = bounded(inspected.Hints)
		return response{Inspection: inspected}
	case errors.As(err, &found):
		return response{Problems: bounded(found.Problems)}
	default:
		return response{Failure: err.Error()}
	}
}

// bounded returns the first problems, with the bounds of their messages.
func bounded(problems []opa.Problem) []opa.Problem {
	kept := slices.Clone(problems[:min(len(problems), maxProblems)])
	for i := range kept {
		kept[i].Message = text.Cut(kept[i].Message, maxProblemBytes)
	}
	return kept
}

// responseError converts a response back to the error.
func responseError(answer response) error {
	switch {
	case len(answer.Problems) > 0:
		return &opa.CompileError{Problems: answer.Problems}
	case answer.Failure != "":
		return fmt.Errorf("checking the module: %s", answer.Failure)
	default:
		return nil
	}
}
