package opa

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/rule"
	"github.com/podops-dev/podops/pkg/rule/spec"
)

// Observation is one evaluation of Rego: a batch of requests of a built-in rule, or one request of a
// user's module.
type Observation struct {
	Rule rule.RuleID

	// Source is what Program.Source says.
	Source string

	Stage appsv1alpha1.TransitionStage

	// Input and Output make the documents that went in and came out, as JSON: keys sorted, no
	// blanks, sets as sorted arrays. They cost time in proportion to the documents, once per call,
	// and may be called at any time. Output returns Err when that is not nil, and an error when the
	// decision of a user's module is longer than 64 KiB.
	Input, Output func() (json.RawMessage, error)

	// Duration from the question to the answer, on the wall.
	Duration time.Duration

	// Err is why there is no decision.
	Err error
}

// observe tells the observer, if there is one.
func (p *Program) observe(input ast.Value, began time.Time, err error, output func() (json.RawMessage, error)) {
	if p.engine.options.Observe == nil {
		return
	}
	p.engine.options.Observe(Observation{
		Rule: p.id, Source: p.shape.source, Stage: p.stage,
		Input:    func() (json.RawMessage, error) { return canonical(input, unbounded) },
		Output:   output,
		Duration: time.Since(began), Err: err,
	})
}

// Replay evaluates a rule again on an input as it was observed, and returns the decision document:
// the very bytes of Observation.Output. The input speaks for itself: its literal and its parameters
// count, and not those of the module. Nobody observes it.
//
// A user's module has its usual time, and the error of an evaluation that gives no decision is that
// of the observation.
func (e *Engine) Replay(ctx context.Context, module spec.Module, input json.RawMessage) (output json.RawMessage, err error) {
	defer func() {
		if value := recover(); value != nil {
			output, err = nil, &PanicError{Value: value, Stack: debug.Stack()}
		}
		if err != nil {
			err = fmt.Errorf("replaying rule %q: %w", module.ID, err)
		}
	}()
	program, err := e.Prepare(ctx, module)
	if err != nil {
		return nil, err
	}
	value, err := ast.ValueFromReader(bytes.NewReader(input))
	if err != nil {
		return nil, fmt.Errorf("reading the input: %w", err)
	}
	ready, err := program.compiled(ctx)
	if err != nil {
		return nil, err
	}
	if program.custom {
		given := e.askWatched(ctx, ready, value)
		if given.err != nil {
			return nil, given.err
		}
		return given.output, given.outputErr
	}
	ctx, stop := context.WithTimeout(ctx, e.options.Timeout)
	defer stop()
	term, err := ready.decide(ctx, value)
	if err != nil {
		return nil, err
	}
	return canonical(term.Value, unbounded)
}
