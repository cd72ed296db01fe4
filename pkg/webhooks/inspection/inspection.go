// Package inspection checks the Rego modules of an admission request: within a time limit, a few at
// once, and with errors that contain the location in the module.
package inspection

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/clock"

	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/engine/opa/vet"
	"github.com/podops-dev/podops/pkg/runtime/fairshare"
)

// Timeout leaves half a second of the 3 s that an API server waits for a webhook: the
// response must be sent before then.
const Timeout = 2500 * time.Millisecond

// maxProblems is how many errors of one module a response lists.
const maxProblems = 10

// Inspector checks one module, and keeps only its result in this process: a dry run must leave
// nothing behind. It is a *sandbox.Sandbox.
type Inspector interface {
	// Check returns an *opa.CompileError for an invalid module; any other error is independent of
	// the module. spent is the CPU that it took.
	Check(ctx context.Context, source opa.Source) (spent time.Duration, err error)

	// Known reports whether Check has the result and costs nothing, and returns the inspection of a module without
	// problems.
	Known(source opa.Source) (opa.Inspection, bool)
}

// ErrTimeout means that no time was left to check a module.
var ErrTimeout = errors.New("the module could not be checked in time: try again, or make it simpler")

// Module is a module that a user wrote.
type Module struct {
	// Owner is charged for the check: the namespace of the object, or Cluster.
	Owner string

	// Path of the field that holds it.
	Path *field.Path

	// File is its name in messages ("no-fridays.rego").
	File string

	Source string

	// ParametersSchema is a JSON schema; nil leaves the parameters open.
	ParametersSchema json.RawMessage
}

// Checker checks modules. It is safe for concurrent use.
type Checker struct {
	inspector Inspector
	timeout   time.Duration

	// slots are taken while a module is inspected. An inspection after its timeout keeps its slot
	// until the inspector returns, so that modules that cannot be stopped do not pile up.
	slots *fairshare.Slots

	budget *budget
}

// maxRequests is how many requests of one owner may wait for a slot.
const maxRequests = 32

// New returns a Checker. timeout is for all modules of one request, and atOnce the
// number of modules that are inspected at the same time over all requests; one owner
// uses at most atOnce - 1 of these slots.
func New(inspector Inspector, timeout time.Duration, atOnce int, clk clock.PassiveClock) *Checker {
	return &Checker{
		inspector: inspector, timeout: timeout, budget: newBudget(clk),
		slots: fairshare.NewSlots(fairshare.SlotOptions{Slots: atOnce, Each: max(1, atOnce-1), Waiting: maxRequests}),
	}
}

// Check returns the errors of the modules. The returned error means that the result is unknown:
// it wraps ErrTimeout after a timeout, and names the module. It is a *BusyError when the owner
// has used up a share.
func (c *Checker) Check(ctx context.Context, modules ...Module) (field.ErrorList, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	release, err := c.budget.enter(modules)
	if err != nil {
		return nil, err
	}
	defer release()
	var errs field.ErrorList
	for _, module := range modules {
		err := c.inspect(ctx, module)
		wrong, busy := &opa.CompileError{}, &BusyError{}
		switch {
		case err == nil:
		case errors.As(err, &busy):
			return nil, fmt.Errorf("%s: %w", module.Path, err)
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

// Known returns the inspection of a module that was checked before and has no problems.
func (c *Checker) Known(module Module) (opa.Inspection, bool) {
	return c.inspector.Known(module.source())
}

// source returns the module as an Inspector takes it.
func (m Module) source() opa.Source {
	return opa.Source{Owner: m.Owner, Module: m.Source, ParametersSchema: m.ParametersSchema}
}

// inspect returns when ctx ends, even if the inspector does not.
func (c *Checker) inspect(ctx context.Context, module Module) error {
	source := module.source()
	if _, known := c.inspector.Known(source); !known {
		if err := c.budget.allow(module.Owner); err != nil {
			return err
		}
	}
	release, err := c.slots.Acquire(ctx, module.Owner)
	if errors.Is(err, fairshare.ErrFull) {
		return &BusyError{Owner: module.Owner, What: "too many of its modules wait to be checked", RetryAfter: time.Second}
	}
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		defer release()
		defer func() {
			if value := recover(); value != nil {
				done <- &opa.PanicError{Value: value, Stack: debug.Stack()}
			}
		}()
		spent, err := c.inspector.Check(ctx, source)
		c.budget.spend(module.Owner, spent)
		if errors.Is(err, fairshare.ErrFull) {
			err = &BusyError{Owner: module.Owner, What: "too many of its modules wait to be checked", RetryAfter: time.Second}
		}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// problems returns the problems as errors of the field: "file:row:column", code and message.
func problems(module Module, found []opa.Problem) field.ErrorList {
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

// maxWarnings is the number of warnings about one module.
const maxWarnings = 4

// Warnings returns the probable mistakes in a module that was checked, as warnings of a response. A module without a reason is none:
// many modules of one line have no reason.
func Warnings(path *field.Path, found opa.Inspection) []string {
	var warnings []string
	for _, problem := range found.Hints {
		if problem.Code == vet.HintNoReason || len(warnings) == maxWarnings {
			continue
		}
		place := fmt.Sprintf("row %d, column %d of the module", problem.Row, problem.Column)
		if problem.File != "" {
			place = fmt.Sprintf("%s:%d:%d", problem.File, problem.Row, problem.Column)
		}
		warnings = append(warnings, fmt.Sprintf("%s: %s (%s)", path, problem.Message, place))
	}
	return warnings
}
