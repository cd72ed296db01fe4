package opa

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/rule"
)

// batch is how many requests go into one evaluation of a built-in rule. It bounds the memory of an
// evaluation, and makes the timeout one of work done: the first look at 10,000 waiting pods is not
// an error. Dividing is sound since no rule sees more than one request at a time.
const batch = 256

// Program is one rule, ready to be asked. It is safe for concurrent use.
type Program struct {
	id          rule.RuleID
	kind        rule.Kind
	stage       appsv1alpha1.TransitionStage
	enforcement appsv1alpha1.Enforcement

	// custom: a module of the user decides, and is asked about one request at a time.
	custom bool

	// verdictCache has the verdicts of a built-in rule.
	verdictCache *verdictCache

	// literal of the rule, and parameters of a custom one, as JSON.
	literal, parameters json.RawMessage

	shape *shape

	// pinned is the program of a built-in kind; nil for a user's module, which is in the memory of the
	// engine or not.
	pinned *compiled

	// owner is charged for the program. The namespace of the rule is charged for its documents.
	owner  string
	engine *Engine
}

// ID of the rule.
func (p *Program) ID() rule.RuleID { return p.id }

// Kind of the rule.
func (p *Program) Kind() rule.Kind { return p.kind }

// Stage in which the rule is asked.
func (p *Program) Stage() appsv1alpha1.TransitionStage { return p.stage }

// Enforcement of the rule.
func (p *Program) Enforcement() appsv1alpha1.Enforcement { return p.enforcement }

// Needs says which surroundings the rule reads. Evaluate may be given less of the others.
func (p *Program) Needs() Needs { return p.shape.needs }

// Source names what was compiled: a hash, in hex. An edit that makes another module, or another
// schema of its parameters, makes another name; other parameters do not.
func (p *Program) Source() string { return p.shape.source }

// NeedsCounts says whether the result depends on the counts at all. Of a rule that does not, the
// room is nil and any counts will do.
func (p *Program) NeedsCounts() bool { return p.shape.needs.Counts }

// VerdictsNeedCounts says whether the verdicts, and not just the room, depend on the counts. Of the
// built-in kinds that is so only for an availablePolicy that is not enforced: its Would says whether
// there was room.
//
// Verdicts of a program that reads no surroundings (Needs) depend on the pod, the operation and the
// task alone. A caller may remember them by (program, pod UID, pod version, operation id, operation
// type, generation, task) and ask only about the requests that it has no verdict for; the room of an
// availablePolicy it gets by asking about none. Not to be remembered are the codes Timeout,
// EvaluationFailed and NotReached: nothing need change for the next answer to be another one.
func (p *Program) VerdictsNeedCounts() bool {
	return p.NeedsCounts() && (p.custom || p.enforcement != appsv1alpha1.EnforcementEnforce)
}

// hasRoom: the rule hands out slots.
func (p *Program) hasRoom() bool { return p.kind == rule.KindAvailablePolicy }

// calls: the rule decides by the tasks of the requests, and says which of them need a call.
func (p *Program) calls() bool { return p.kind == rule.KindWebhook }

// Evaluate asks the rule about the requests, which all wait in stage. The result has a verdict for
// each of them, whatever their order and number. No requests is a question for the room alone.
//
// A user's module is asked about one request at a time, in the given order. What goes wrong with one
// of them is its verdict: rule.CodeTimeout when the module was not done after
// Options.CustomTimeout, policy.CodeEvaluationFailed with the error, and rule.CodeNotReached when
// ctx or Options.RoundBudget ended before it was asked, or the machine was too busy. The deadline of
// ctx takes effect between two requests, its cancellation at once.
//
// Of a built-in rule an error withholds all of the requests: the context's own error when ctx or the
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
	if len(requests) == 0 && !p.hasRoom() {
		return rule.Result{Verdicts: map[string]rule.Verdict{}}, nil
	}
	if err := p.check(stage, requests); err != nil {
		return rule.Result{}, err
	}
	if p.custom {
		return p.evaluateEach(ctx, env, requests), nil
	}
	if p.engine.options.AskAlike {
		return p.evaluateAll(ctx, env.Counts, requests)
	}
	return p.evaluateAlike(ctx, env.Counts, requests)
}

// evaluateAlike asks a built-in rule about those requests that do not look to it like one that it
// has answered before, and about each that looks different once.
func (p *Program) evaluateAlike(ctx context.Context, counts rule.Counts, requests []rule.Request) (rule.Result, error) {
	result := rule.Result{Verdicts: make(map[string]rule.Verdict, len(requests))}
	rest, room, err := p.verdictCache.recall(counts, requests, result.Verdicts)
	if err != nil {
		return rule.Result{}, err
	}
	if len(rest.asked) == 0 && (room != nil || !p.hasRoom()) {
		result.Capacity = room
		return result, nil
	}
	for start := 0; start == 0 || start < len(rest.asked); start += batch {
		part := rest.part(start, min(start+batch, len(rest.asked)))
		answered, err := p.evaluateBatch(ctx, counts, part.asked)
		if err != nil {
			return rule.Result{}, err
		}
		p.verdictCache.answer(counts, part, answered, result.Verdicts)
		result.Capacity = answered.Capacity // the same for each batch: it comes from the counts alone
	}
	return result, nil
}

// evaluateAll asks a built-in rule about every request, however many look alike.
func (p *Program) evaluateAll(ctx context.Context, counts rule.Counts, requests []rule.Request) (rule.Result, error) {
	result := rule.Result{Verdicts: make(map[string]rule.Verdict, len(requests))}
	if _, _, err := p.verdictCache.recall(counts, requests, map[string]rule.Verdict{}); err != nil {
		return rule.Result{}, err
	}
	for start := 0; start == 0 || start < len(requests); start += batch {
		answered, err := p.evaluateBatch(ctx, counts, requests[start:min(start+batch, len(requests))])
		if err != nil {
			return rule.Result{}, err
		}
		maps.Copy(result.Verdicts, answered.Verdicts)
		result.Capacity = answered.Capacity
	}
	return result, nil
}

// evaluateBatch asks about one batch.
func (p *Program) evaluateBatch(ctx context.Context, counts rule.Counts, requests []rule.Request) (rule.Result, error) {
	read, err := p.documents()
	if err != nil {
		return rule.Result{}, err
	}
	keys, input := p.engine.facts.batchInput(read.rule, p.stage, counts, requests, p.calls())
	term, err := p.decide(ctx, input)
	if err != nil {
		return rule.Result{}, err
	}
	return decode(term, keys, parts{room: p.hasRoom(), calls: p.calls()})
}

// decide evaluates a built-in rule, in this goroutine.
func (p *Program) decide(ctx context.Context, input ast.Value) (*ast.Term, error) {
	ctx, stop := context.WithTimeout(ctx, p.engine.options.Timeout)
	defer stop()
	began := time.Now()
	term, err := p.pinned.decide(ctx, input)
	p.observe(input, began, err, func() (json.RawMessage, error) {
		if err != nil {
			return nil, err
		}
		return canonical(term.Value, unbounded)
	})
	return term, err
}

// check refuses questions that the rule was not made for.
func (p *Program) check(stage appsv1alpha1.TransitionStage, requests []rule.Request) error {
	if stage != p.stage {
		return fmt.Errorf("asked in stage %q, it is a rule of stage %q", stage, p.stage)
	}
	asked := map[string]bool{}
	for _, request := range requests {
		if request.Pod == nil {
			return errors.New("asked about a request without a pod")
		}
		if request.Stage != stage {
			return fmt.Errorf("asked about a request in stage %q together with stage %q", request.Stage, stage)
		}
		if !p.custom {
			continue // verdictCache.recall finds the keys that are in there twice
		}
		// One of the two would get the verdict of the other.
		key := request.Key()
		if asked[key] {
			return fmt.Errorf("asked twice about request %q", key)
		}
		asked[key] = true
	}
	return nil
}
