package opa

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
)

// batch is the number of requests in one evaluation of a built-in rule. It bounds the memory of an
// evaluation, and lets the timeout depend on the work done: the first evaluation of 10,000 waiting
// pods is not an error. Batches are sound because no rule sees more than one request at a time.
const batch = 256

// Program is one rule that is ready for evaluation. It is safe for concurrent use.
type Program struct {
	id          rule.RuleID
	kind        rule.Kind
	stage       appsv1alpha1.TransitionStage
	enforcement appsv1alpha1.Enforcement

	// custom is set if a user's module decides; it is evaluated for one request at a time.
	custom bool

	// verdictCache holds the verdicts of a built-in rule.
	verdictCache *verdictCache

	// literal is the rule in JSON, parameters the parameters of a custom rule in JSON.
	literal, parameters json.RawMessage

	info *moduleInfo

	// pinned is the program of a built-in kind; nil for a user's module, which may or may not be in
	// the memory of the engine.
	pinned *compiled

	// owner is charged for the program. The namespace of the rule is charged for its documents.
	owner  string
	engine *Engine
}

// ID returns the id of the rule.
func (p *Program) ID() rule.RuleID { return p.id }

// Kind returns the kind of the rule.
func (p *Program) Kind() rule.Kind { return p.kind }

// Stage returns the stage in which the rule is evaluated.
func (p *Program) Stage() appsv1alpha1.TransitionStage { return p.stage }

// Enforcement returns the enforcement of the rule.
func (p *Program) Enforcement() appsv1alpha1.Enforcement { return p.enforcement }

// Needs returns the parts of the environment that the rule reads. Evaluate may get empty values for
// the other parts.
func (p *Program) Needs() Needs { return p.info.Needs }

// Source returns the hash of the compiled source, in hex. It changes with the module and with the
// schema of its parameters, and not with the parameters.
func (p *Program) Source() string { return p.info.source }

// NeedsCounts reports whether the result depends on the counts. If not, Evaluate takes any counts
// and returns no capacity.
func (p *Program) NeedsCounts() bool { return p.info.Needs.Counts }

// VerdictsNeedCounts reports whether the verdicts, and not just the capacity, depend on the counts.
// Of the built-in kinds that is so only for an availablePolicy that is not enforced: its Would
// depends on whether there are slots.
//
// Verdicts of a program that reads no environment (Needs) depend on the pod, the operation and the
// task alone. A caller may cache them by (program, pod UID, pod version, operation id, operation
// type, attempt, task) and evaluate only the requests without a cached verdict; with no requests
// Evaluate returns the capacity of an availablePolicy alone. The codes Timeout, EvaluationFailed
// and NotReached must not be cached: the next evaluation may return another verdict although
// nothing changed.
func (p *Program) VerdictsNeedCounts() bool {
	return p.NeedsCounts() && (p.custom || p.enforcement != appsv1alpha1.EnforcementEnforce)
}

// hasCapacity reports whether the rule grants slots.
func (p *Program) hasCapacity() bool { return p.kind == rule.KindAvailablePolicy }

// calls reports whether the rule decides by the tasks of the requests, and lists the requests that
// need a call.
func (p *Program) calls() bool { return p.kind == rule.KindWebhook }

// Evaluate evaluates the rule for the requests, which all wait in stage. The result has a verdict
// for each of them. Without requests it has only the capacity.
//
// A user's module is evaluated for one request at a time, in the given order. An error of one
// evaluation is the verdict of its request: rule.CodeTimeout if the module did not finish within
// Options.CustomTimeout, rule.CodeEvaluationFailed with the error, and rule.CodeNotReached if ctx
// or Options.RoundBudget ended before the evaluation, or the machine was too busy. The deadline of
// ctx takes effect between two requests, its cancellation at once.
//
// An error of a built-in rule withholds all of the requests: the error of ctx if ctx or the
// engine's timeout ended the evaluation, ErrUndefined, a *PanicError, or an error of Rego.
func (p *Program) Evaluate(
	ctx context.Context, stage appsv1alpha1.TransitionStage, env rule.Environment, requests []rule.Request,
) (result rule.Result, err error) {
	defer func() {
		if value := recover(); value != nil {
			result, err = rule.Result{}, &PanicError{Value: value, Stack: debug.Stack()}
		}
		if err != nil {
			err = fmt.Errorf("evaluating rule %q: %w", p.id, err)
		}
	}()
	if len(requests) == 0 && !p.hasCapacity() {
		return rule.Result{Verdicts: map[string]rule.Verdict{}}, nil
	}
	if err := p.check(stage, requests); err != nil {
		return rule.Result{}, err
	}
	if p.custom {
		return p.evaluateEach(ctx, env, requests), nil
	}
	result, evaluations, err := p.evaluateDistinct(ctx, env.Counts, requests)
	if p.engine.options.Observe != nil {
		p.observeAll(ctx, env.Counts, requests, observed{result: result, evaluations: evaluations, err: err})
	}
	return result, err
}

// evaluateDistinct evaluates a built-in rule for the requests whose projections are not cached, and
// once for each projection. It returns the number of Rego evaluations.
func (p *Program) evaluateDistinct(
	ctx context.Context, counts rule.Counts, requests []rule.Request,
) (result rule.Result, evaluations int, err error) {
	result = rule.Result{Verdicts: make(map[string]rule.Verdict, len(requests))}
	rest, capacity, err := p.verdictCache.lookUp(counts, requests, result.Verdicts)
	if err != nil {
		return rule.Result{}, 0, err
	}
	if len(rest.requests) == 0 && (capacity != nil || !p.hasCapacity()) {
		result.Capacity = capacity
		return result, 0, nil
	}
	for start := 0; start == 0 || start < len(rest.requests); start += batch {
		part := rest.part(start, min(start+batch, len(rest.requests)))
		answered, err := p.evaluateBatch(ctx, counts, part.requests)
		evaluations++
		if err != nil {
			return rule.Result{}, evaluations, err
		}
		p.verdictCache.store(counts, part, answered, result.Verdicts)
		result.Capacity = answered.Capacity // the same for each batch: it depends on the counts alone
	}
	return result, evaluations, nil
}

// observed is the result of Evaluate for a built-in rule.
type observed struct {
	result      rule.Result
	evaluations int
	err         error
}

// observeAll reports the verdicts of a built-in rule to the observer, with the whole input of each request. Rego
// has evaluated one request for each projection that is not cached; observeAll evaluates every request, so that
// the observation is complete, and confirms the verdicts.
func (p *Program) observeAll(ctx context.Context, counts rule.Counts, requests []rule.Request, returned observed) {
	read, err := p.documents()
	if err != nil {
		return // Evaluate has returned it
	}
	for start := 0; start == 0 || start < len(requests); start += batch {
		part := requests[start:min(start+batch, len(requests))]
		keys, input := batchInput(read.rule, p.stage, counts, part, p.kind)
		began := time.Now()
		term, err := (*ast.Term)(nil), returned.err
		if err == nil {
			term, err = p.decide(ctx, input)
		}
		if err == nil {
			err = p.confirm(term, keys, returned.result)
		}
		output := func() (json.RawMessage, error) {
			if err != nil {
				return nil, err
			}
			return canonical(term.Value, unbounded)
		}
		p.observe(input, began, Observation{Requests: part, Output: output, Evaluations: returned.evaluations, Err: err})
		returned.evaluations = 0
	}
}

// confirm returns an error if a verdict differs from the verdict that Evaluate has returned.
func (p *Program) confirm(term *ast.Term, keys []key, returned rule.Result) error {
	evaluated, err := decode(term, keys, parts{capacity: p.hasCapacity(), calls: p.calls()})
	if err != nil {
		return err
	}
	for key, verdict := range evaluated.Verdicts {
		if verdict != returned.Verdicts[key] {
			return fmt.Errorf("the verdict on request %q is %+v, and %+v was returned", key, verdict, returned.Verdicts[key])
		}
	}
	return nil
}

// evaluateBatch evaluates one batch.
func (p *Program) evaluateBatch(ctx context.Context, counts rule.Counts, requests []rule.Request) (rule.Result, error) {
	read, err := p.documents()
	if err != nil {
		return rule.Result{}, err
	}
	keys, input := batchInput(read.rule, p.stage, counts, requests, p.kind)
	term, err := p.decide(ctx, input)
	if err != nil {
		return rule.Result{}, err
	}
	return decode(term, keys, parts{capacity: p.hasCapacity(), calls: p.calls()})
}

// decide evaluates a built-in rule, in this goroutine.
func (p *Program) decide(ctx context.Context, input ast.Value) (*ast.Term, error) {
	ctx, stop := context.WithTimeout(ctx, p.engine.options.Timeout)
	defer stop()
	return p.pinned.decide(ctx, input)
}

// check rejects requests that the rule cannot be evaluated for.
func (p *Program) check(stage appsv1alpha1.TransitionStage, requests []rule.Request) error {
	if stage != p.stage {
		return fmt.Errorf("the requests wait in stage %q, and the rule is of stage %q", stage, p.stage)
	}
	seen := map[string]bool{}
	for _, request := range requests {
		if request.Pod == nil {
			return errors.New("a request has no pod")
		}
		if request.Stage != stage {
			return fmt.Errorf("a request waits in stage %q, and the evaluation is of stage %q", request.Stage, stage)
		}
		if !p.custom {
			continue // verdictCache.lookUp finds duplicate keys
		}
		// One of the two would get the verdict of the other.
		key := request.Key()
		if seen[key] {
			return fmt.Errorf("request %q is listed twice", key)
		}
		seen[key] = true
	}
	return nil
}
