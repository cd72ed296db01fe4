package opa

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/podops-dev/podops/pkg/core/rule"
)

// Workers compiles and evaluates users' modules in other processes. No check of a text finds every module
// that uses up the memory or the stack of its process, and some steps of OPA cannot be interrupted; a process
// can be killed. It is a *sandbox.Sandbox.
type Workers interface {
	// Inspect compiles a module. The error is a *CompileError if the module is wrong.
	Inspect(ctx context.Context, source Source) (Inspection, error)

	// Evaluate evaluates a module for the requests of a batch, one after the other. It returns the
	// answers in the order of the requests, and the CPU time that they took. If there are fewer answers
	// than requests, the error contains the reason: it wraps ErrNotReached unless the module is the reason. The
	// deadline of ctx takes effect between two requests, its cancellation at once.
	Evaluate(ctx context.Context, batch Batch) ([]Answer, time.Duration, error)
}

// Batch is one evaluation of a user's module for some requests.
type Batch struct {
	Source Source

	// ID is the hash of the module and the schema of its parameters: Program.Source.
	ID string

	// Namespace is the namespace of the rule, which is charged for its documents.
	Namespace string

	// Literal is the JSON of the rule, Parameters the JSON of its parameters.
	Literal, Parameters json.RawMessage

	// Environment has the parts of the environment that the module reads.
	Environment rule.Environment

	Requests []rule.Request

	// Details reports whether the module reads the details of pods.
	Details bool

	// Observed is the whole input of one evaluation, in place of the environment and the requests.
	Observed json.RawMessage

	// Limit is the CPU time for one request.
	Limit time.Duration

	// Outputs requests the decision documents.
	Outputs bool
}

// Answer is the answer of a user's module for one request.
type Answer struct {
	// Verdict is the verdict of the module. It is valid if Err is nil.
	Verdict rule.Verdict

	// Output is the decision document, if the batch requests it. OutputErr is the error of a verdict without a document.
	Output    json.RawMessage
	OutputErr error

	// Err is why there is no verdict.
	Err error

	// Duration is the wall-clock time of the evaluation.
	Duration time.Duration
}

// ModuleError is an error of a user's module as another process reports it.
type ModuleError struct {
	// Code and Message are the code and message of the verdict.
	Code    rule.Code
	Message string

	// Text is the text of the error.
	Text string
}

func (e *ModuleError) Error() string { return e.Text }

// AsModuleError returns an error of a user's module in the form in which another process reports it.
func AsModuleError(err error) *ModuleError {
	code, message := explained(err)
	return &ModuleError{Code: code, Message: message, Text: err.Error()}
}

// EvaluateModule evaluates a batch in this process. It calls ready when the module is compiled and its
// documents are read, and answered after each request, until ctx ends or answered returns an error.
//
// An evaluation is cancelled at the limit of the batch, in wall-clock time. It may continue long after that: only the end
// of the process ends every evaluation. Without a limit it is not cancelled.
func (e *Engine) EvaluateModule(ctx context.Context, batch Batch, ready func() error, answered func(Answer) error) error {
	key := compiledKey{kind: rule.KindRego, module: batch.Source.Module, schema: string(batch.Source.ParametersSchema)}
	program, err := e.compiledModule(ctx, batch.Source.Owner, &moduleInfo{key: key, source: batch.ID})
	if err != nil {
		return err
	}
	read, err := e.documents(batch.Namespace, batch.Literal, batch.Parameters)
	if err != nil {
		return err
	}
	if err := ready(); err != nil {
		return err
	}
	if batch.Observed != nil {
		input, err := ast.ValueFromReader(bytes.NewReader(batch.Observed))
		if err != nil {
			return fmt.Errorf("reading the input: %w", err)
		}
		if err := checkRecorded(input, program.Needs); err != nil {
			return answered(Answer{Err: err})
		}
		return answered(program.answer(ctx, input, batch.Limit, batch.Outputs))
	}
	env := e.terms.env(batch.Environment, program.Needs)
	for _, request := range batch.Requests {
		if ctx.Err() != nil {
			return ErrNotReached
		}
		began := time.Now()
		input := e.terms.customInput(read.rule, read.parameters, env, request)
		given := program.answer(ctx, input, batch.Limit, batch.Outputs)
		given.Verdict = program.missingReason.explain(given.Verdict, input)
		given.Duration = time.Since(began)
		if err := answered(given); err != nil {
			return err
		}
	}
	return nil
}

// evaluateModule evaluates a batch in a worker, or in this process without workers.
func (e *Engine) evaluateModule(ctx context.Context, batch Batch) ([]Answer, time.Duration, error) {
	if e.options.Workers != nil {
		return e.options.Workers.Evaluate(ctx, batch)
	}
	return e.Evaluate(ctx, batch)
}

// Evaluate evaluates a batch in this process. With it an Engine implements Workers.
func (e *Engine) Evaluate(ctx context.Context, batch Batch) (answers []Answer, used time.Duration, err error) {
	began := time.Now()
	err = e.EvaluateModule(ctx, batch, func() error { return nil }, func(given Answer) error {
		answers = append(answers, given)
		return nil
	})
	return answers, time.Since(began), err
}

// answer evaluates the module for one request and reads the decision, at most until the limit.
// It does not panic.
func (c *compiled) answer(ctx context.Context, input ast.Value, limit time.Duration, output bool) (given Answer) {
	defer func() {
		if value := recover(); value != nil {
			given = Answer{Err: &PanicError{Value: value, Stack: debug.Stack()}}
		}
	}()
	cancel := topdown.NewCancel()
	defer context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.Canceled) {
			cancel.Cancel()
		}
	})()
	expired := atomic.Bool{}
	if limit > 0 {
		defer time.AfterFunc(limit, func() {
			expired.Store(true)
			cancel.Cancel()
		}).Stop()
	}
	// The context of the caller is not used: cancel alone ends the evaluation.
	term, err := evaluate(context.Background(), c.query, cancel, input, c.transaction(cancel, input)...)
	switch {
	case topdown.IsCancel(err) && expired.Load():
		return Answer{Err: fmt.Errorf("%w: it used up its time of %v", ErrTimeout, limit)}
	case topdown.IsCancel(err) && ctx.Err() != nil:
		return Answer{Err: ErrNotReached}
	case err != nil:
		return Answer{Err: err}
	}
	given.Verdict, given.Err = decodeCustom(term)
	if output {
		given.Output, given.OutputErr = canonical(term.Value, maxOutputBytes)
	}
	return given
}
