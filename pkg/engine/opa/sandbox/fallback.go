package sandbox

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/podops-dev/podops/pkg/engine/opa"
)

// Fallback is a Sandbox that compiles and evaluates modules in this process where no process can be started: nothing
// bounds their memory and stack then. It is for programs that end soon and serve one user.
type Fallback struct {
	*Sandbox
	here     *opa.Engine
	reported sync.Once
	report   func(error)
}

// NewFallback returns a Fallback. It calls report once, when the first process cannot be started.
func NewFallback(report func(error)) (*Fallback, error) {
	here, err := opa.New(opa.Options{})
	if err != nil {
		return nil, err
	}
	return &Fallback{Sandbox: New(Options{}), here: here, report: report}, nil
}

// without reports whether an error means that this process has to do the work.
func (f *Fallback) without(err error) bool {
	if !errors.Is(err, ErrNotStarted) {
		return false
	}
	f.reported.Do(func() { f.report(err) })
	return true
}

// Inspect implements opa.Workers.
func (f *Fallback) Inspect(ctx context.Context, source opa.Source) (opa.Inspection, error) {
	found, err := f.Sandbox.Inspect(ctx, source)
	if f.without(err) {
		return f.here.Inspect(ctx, source)
	}
	return found, err
}

// Evaluate implements opa.Workers.
func (f *Fallback) Evaluate(ctx context.Context, batch opa.Batch) ([]opa.Answer, time.Duration, error) {
	given, used, err := f.Sandbox.Evaluate(ctx, batch)
	if f.without(err) {
		return f.here.Evaluate(ctx, batch)
	}
	return given, used, err
}

// Check is Sandbox.Check.
func (f *Fallback) Check(ctx context.Context, source opa.Source) (spent time.Duration, err error) {
	began := time.Now()
	_, err = f.Inspect(ctx, source)
	return time.Since(began), err
}

// Known is Sandbox.Known.
func (f *Fallback) Known(source opa.Source) (found opa.Inspection, known bool) {
	if f.here.IsCompiled(source.Module, source.ParametersSchema) {
		found, err := f.here.Inspect(context.Background(), source)
		return found, err == nil
	}
	return f.Sandbox.Known(source)
}
