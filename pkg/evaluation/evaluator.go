package evaluation

import (
	"context"
	"encoding/json"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/opa"
	"github.com/podops-dev/podops/pkg/rule"
	"github.com/podops-dev/podops/pkg/rule/spec"
)

// Evaluator evaluates the rules of namespaces. It has no state: that of a namespace is its State.
type Evaluator struct {
	engine         Engine
	prepared       func(spec.Module)
	rejectionRetry time.Duration
	hold           Hold
}

// Engine prepares rules for evaluation. EngineOf returns the engine that uses OPA.
type Engine interface {
	Inspect(ctx context.Context, source opa.Source) (opa.Inspection, error)
	IsCompiled(module string, parametersSchema json.RawMessage) bool
	Prepare(ctx context.Context, module spec.Module) (Program, error)
}

// Program is a compiled rule. It is an *opa.Program.
type Program interface {
	// Evaluate evaluates requests that all wait in one stage.
	Evaluate(ctx context.Context, stage appsv1alpha1.TransitionStage, env rule.Environment, requests []rule.Request) (rule.Result, error)

	// NeedsCounts reports whether the result, at least its capacity, depends on the counts, and VerdictsNeedCounts
	// whether the verdicts do.
	NeedsCounts() bool
	VerdictsNeedCounts() bool

	Needs() opa.Needs
	Source() string
}

// EngineOf returns the Engine of OPA.
func EngineOf(engine *opa.Engine) Engine { return opaEngine{engine} }

type opaEngine struct{ *opa.Engine }

// Prepare implements Engine.
func (e opaEngine) Prepare(ctx context.Context, module spec.Module) (Program, error) {
	program, err := e.Engine.Prepare(ctx, module)
	if err != nil {
		return nil, err
	}
	return program, nil
}

// Config configures an Evaluator.
type Config struct {
	Engine Engine

	// Prepared is called with each module that is evaluated for a rule from now on; nil: not called.
	Prepared func(spec.Module)

	// RejectionRetry is the approximate delay after a denial until the service of a webhook rule is
	// called again.
	RejectionRetry time.Duration

	// Hold bounds the holds of the rules that have no bound of their own.
	Hold Hold
}

// New returns an Evaluator.
func New(c Config) *Evaluator {
	return &Evaluator{engine: c.Engine, prepared: c.Prepared, rejectionRetry: c.RejectionRetry, hold: c.Hold}
}
