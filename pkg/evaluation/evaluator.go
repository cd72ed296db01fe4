package evaluation

import (
	"context"
	"encoding/json"
	"time"

	"k8s.io/utils/clock"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/opa"
	"github.com/podops-dev/podops/pkg/rule"
	"github.com/podops-dev/podops/pkg/rule/spec"
	"github.com/podops-dev/podops/pkg/webhookclient"
	"github.com/podops-dev/podops/pkg/webhooktask/dispatch"
)

// Evaluator evaluates the rules of namespaces. It is safe for concurrent use with a State each.
type Evaluator struct {
	engine         Engine
	prepared       func(spec.Module)
	calls          *dispatch.InFlight
	services       Services
	rejectionRetry time.Duration
	hold           Hold
	clock          clock.PassiveClock
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

// Services are the circuit breakers of the services of webhook rules. They are a *dispatch.Dispatcher.
type Services interface {
	// CircuitOpen returns the failure that a POST of a rule would have because the circuit breaker of the
	// service is open; nil when the POST would be made. It changes nothing.
	CircuitOpen(rule rule.RuleID, service dispatch.Service) *webhookclient.Failure

	// Admit is called before POSTs of a rule are recorded. It returns the failure of CircuitOpen, or reports
	// that the next POST is the probe of a half-open circuit breaker, which is reserved for that POST.
	Admit(rule rule.RuleID, service dispatch.Service) (probe bool, failure *webhookclient.Failure)

	// CountSkipped counts a POST of a rule that was not made because the circuit breaker is open.
	CountSkipped(rule rule.RuleID, service dispatch.Service, failure *webhookclient.Failure)
}

// Config configures an Evaluator.
type Config struct {
	Engine Engine

	// Prepared is called with each module that is evaluated for a rule from now on; nil: not called.
	Prepared func(spec.Module)

	// Calls are the calls of webhook rules in flight, and Services the circuit breakers of their services.
	Calls    *dispatch.InFlight
	Services Services

	// RejectionRetry is the approximate delay after a denial until the service of a webhook rule is
	// called again.
	RejectionRetry time.Duration

	// Hold bounds the holds of the rules that have no bound of their own.
	Hold Hold

	Clock clock.PassiveClock
}

// New returns an Evaluator.
func New(c Config) *Evaluator {
	return &Evaluator{
		engine: c.Engine, prepared: c.Prepared, calls: c.Calls, services: c.Services, rejectionRetry: c.RejectionRetry, hold: c.Hold, clock: c.Clock,
	}
}
