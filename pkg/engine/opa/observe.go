package opa

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
)

// Observation is one Rego evaluation: a batch of requests for a built-in rule, or one request of a
// user's module.
type Observation struct {
	Rule rule.RuleID

	// Source is the value of Program.Source.
	Source string

	Stage appsv1alpha1.TransitionStage

	// Requests are the requests in the input. The slice must not be modified.
	Requests []rule.Request

	// Input and Output return the input and the decision as JSON: keys sorted, no whitespace, sets
	// as sorted arrays. Each call takes time in proportion to the document, and may be made at any
	// time. Output returns Err if that is not nil, and an error if the decision of a user's module
	// is longer than 64 KiB.
	Input, Output func() (json.RawMessage, error)

	// Duration is the wall-clock time of the evaluation.
	Duration time.Duration

	// Evaluations is the number of Rego evaluations for the returned verdicts: 0 if all of them were
	// cached. The evaluation of the observation itself does not count.
	Evaluations int

	// Err is the error of an evaluation without a decision, or reports a verdict that differs from the
	// returned verdict.
	Err error
}

// observe calls Options.Observe, which must be set, with what the program adds to an observation.
func (p *Program) observe(input ast.Value, began time.Time, observation Observation) {
	observation.Rule, observation.Source, observation.Stage = p.id, p.info.source, p.stage
	observation.Input = func() (json.RawMessage, error) { return canonical(input, unbounded) }
	observation.Duration = time.Since(began)
	p.engine.options.Observe(observation)
}

// Replay evaluates a rule again on an observed input, and returns the decision document: the same
// bytes as Observation.Output. The literal and the parameters come from the input, not from the
// module. Replay does not call Options.Observe.
//
// A user's module has its usual CPU time. Without a decision, Replay returns the error of the
// observation.
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
	if program.custom {
		batch := program.batch(rule.Environment{}, nil)
		batch.Observed, batch.Outputs = input, true
		answers, _, err := e.evaluateModule(ctx, batch)
		if len(answers) == 0 {
			return nil, cmp.Or(err, ErrNotReached)
		}
		return answers[0].Output, cmp.Or(answers[0].Err, answers[0].OutputErr)
	}
	value, err := ast.ValueFromReader(bytes.NewReader(input))
	if err != nil {
		return nil, fmt.Errorf("reading the input: %w", err)
	}
	ctx, stop := context.WithTimeout(ctx, e.options.Timeout)
	defer stop()
	term, err := program.pinned.decide(ctx, value)
	if err != nil {
		return nil, err
	}
	return canonical(term.Value, unbounded)
}
