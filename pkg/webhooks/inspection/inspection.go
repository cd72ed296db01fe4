// Package inspection checks the Rego modules of an admission request: in time, a few at
// once, and with an answer that says where in the module something is wrong.
package inspection

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/podops-dev/podops/pkg/policy/engine"
)

// Timeout leaves half a second of the 3 s that an API server waits for a webhook: a
// clear answer has to be on its way before then.
const Timeout = 2500 * time.Millisecond

// maxProblems is how many errors of one module an answer lists.
const maxProblems = 10

// Inspector judges one module. It is an *engine.Engine. A module that is wrong is an
// *engine.CompileError; any other error says nothing about the module.
type Inspector interface {
	Inspect(ctx context.Context, source string, parametersSchema json.RawMessage) (engine.Inspection, error)
}

// ErrTimeout means that there was no time to check a module.
var ErrTimeout = errors.New("the module could not be checked in time: try again, or make it simpler")

// Module is one that a user wrote.
type Module struct {
	// Path of the field that holds it.
	Path *field.Path

	// File is what messages call it ("no-fridays.rego").
	File string

	Source string

	// ParametersSchema is a JSON schema; nil leaves the parameters open.
	ParametersSchema json.RawMessage
}

// Checker checks modules. It is safe for concurrent use.
type Checker struct {
	inspector Inspector
	timeout   time.Duration

	// slots are taken while a module is inspected. One whose time is up keeps its slot
	// until the inspector returns, so modules that nothing can stop do not pile up.
	slots chan struct{}
}

// New returns a Checker. timeout is for all modules of one request, and atOnce how many
// are inspected at the same time over all requests.
func New(inspector Inspector, timeout time.Duration, atOnce int) *Checker {
	return &Checker{inspector: inspector, timeout: timeout, slots: make(chan struct{}, atOnce)}
}

// Check returns what is wrong with the modules. An error says that it is not known: it
// wraps ErrTimeout when there was no time, and names the module.
func (c *Checker) Check(ctx context.Context, modules ...Module) (field.ErrorList, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	var errs field.ErrorList
	for _, module := range modules {
		err := c.inspect(ctx, module)
		wrong := &engine.CompileError{}
		switch {
		case err == nil:
		case errors.As(err, &wrong):
			errs = append(errs, problems(module, wrong.Problems)...)
		case ctx.Err() != nil:
			return nil, fmt.Errorf("%s: %w", module.Path, ErrTimeout)
		default:
			return nil, fmt.Errorf("%s: inspecting the module: %w", module.Path, err)
		}
	}
	return errs, nil
}

// inspect returns when ctx ends, whatever the inspector does.
func (c *Checker) inspect(ctx context.Context, module Module) error {
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	done := make(chan error, 1)
	go func() {
		defer func() { <-c.slots }()
		defer func() {
			if value := recover(); value != nil {
				done <- &engine.PanicError{Value: value, Stack: debug.Stack()}
			}
		}()
		_, err := c.inspector.Inspect(ctx, module.Source, module.ParametersSchema)
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// problems as errors of the field: "file:row:column", code and message.
func problems(module Module, found []engine.Problem) field.ErrorList {
	var errs field.ErrorList
	for _, problem := range found[:min(len(found), maxProblems)] {
		place := module.File
		if problem.File != "" {
			place = problem.File // of the library
		}
		if problem.Row > 0 {
			place = fmt.Sprintf("%s:%d:%d", place, problem.Row, problem.Column)
		}
		errs = append(errs, field.Invalid(module.Path, place, problem.Code+": "+problem.Message))
	}
	if more := len(found) - maxProblems; more > 0 {
		errs = append(errs, field.Invalid(module.Path, module.File, fmt.Sprintf("and %d more problems", more)))
	}
	return errs
}
