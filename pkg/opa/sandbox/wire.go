package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/podops-dev/podops/pkg/opa"
	"github.com/podops-dev/podops/pkg/text"
)

const (
	// maxRequestBytes is far above the size of an accepted module and schema.
	maxRequestBytes = 1 << 20

	// maxResponseBytes is enough for as many problems as OPA reports.
	maxResponseBytes = 256 << 10

	// maxProblemBytes bounds each of them. Some messages of OPA grow with the module.
	maxProblemBytes = 1024

	// maxProblems is the number of problems of a module that a child reports.
	maxProblems = 32
)

// request is the JSON document that the child reads.
type request struct {
	Source string `json:"source"`

	// ParametersSchema is null if the parameters are open.
	ParametersSchema json.RawMessage `json:"parametersSchema,omitempty"`
}

// response is the JSON document that the child writes.
type response struct {
	// Done distinguishes a response from an empty document.
	Done bool `json:"done"`

	// Problems are the problems of the module.
	Problems []opa.Problem `json:"problems,omitempty"`

	// Failure is an error that is not a problem of the module.
	Failure string `json:"failure,omitempty"`
}

// responseOf converts an error of opa.Inspect to a response.
func responseOf(err error) response {
	found := &opa.CompileError{}
	switch {
	case err == nil:
		return response{Done: true}
	case errors.As(err, &found):
		problems := make([]opa.Problem, 0, len(found.Problems))
		for _, problem := range found.Problems[:min(len(found.Problems), maxProblems)] {
			problem.Message = text.Cut(problem.Message, maxProblemBytes)
			problems = append(problems, problem)
		}
		return response{Done: true, Problems: problems}
	default:
		return response{Done: true, Failure: err.Error()}
	}
}

// errorOf converts a response back to the error.
func errorOf(answer response) error {
	switch {
	case len(answer.Problems) > 0:
		return &opa.CompileError{Problems: answer.Problems}
	case answer.Failure != "":
		return fmt.Errorf("the child process: %s", answer.Failure)
	default:
		return nil
	}
}
