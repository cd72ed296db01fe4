package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/podops-dev/podops/pkg/opa"
)

const (
	// maxRequestBytes is far above a module and a schema that anybody would let in.
	maxRequestBytes = 1 << 20

	// maxResponseBytes has room for as many problems as OPA reports.
	maxResponseBytes = 256 << 10

	// maxProblemBytes keeps them within that. Some messages of OPA grow with the module.
	maxProblemBytes = 1024

	// maxProblems is how many errors of a module a child reports.
	maxProblems = 32
)

// request is what the child reads: one JSON document.
type request struct {
	Source string `json:"source"`

	// ParametersSchema is null when the parameters are open.
	ParametersSchema json.RawMessage `json:"parametersSchema,omitempty"`
}

// response is what the child writes: one JSON document.
type response struct {
	// Done tells an answer from none.
	Done bool `json:"done"`

	// Problems of the module.
	Problems []opa.Problem `json:"problems,omitempty"`

	// Failure is an error that is no problem of the module.
	Failure string `json:"failure,omitempty"`
}

// responseOf is an error of opa.Inspect for the pipe.
func responseOf(err error) response {
	found := &opa.CompileError{}
	switch {
	case err == nil:
		return response{Done: true}
	case errors.As(err, &found):
		problems := make([]opa.Problem, 0, len(found.Problems))
		for _, problem := range found.Problems[:min(len(found.Problems), maxProblems)] {
			if len(problem.Message) > maxProblemBytes {
				problem.Message = problem.Message[:maxProblemBytes] + "..."
			}
			problems = append(problems, problem)
		}
		return response{Done: true, Problems: problems}
	default:
		return response{Done: true, Failure: err.Error()}
	}
}

// errorOf is the same error on the other side.
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
