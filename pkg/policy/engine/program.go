package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/topdown"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/policy"
)

// batch is how many requests go into one evaluation of Rego. It bounds the memory of an evaluation,
// and makes the timeout one of work done: the first look at 10,000 waiting pods is not an error.
// Dividing is sound since no rule sees more than one request at a time.
const batch = 256

// Program is one rule, ready to be asked. It is safe for concurrent use.
type Program struct {
	id          policy.RuleID
	kind        policy.Kind
	stage       appsv1alpha1.TransitionStage
	enforcement appsv1alpha1.Enforcement

	// source is a hash of what was compiled.
	source string

	query   rego.PreparedEvalQuery
	facts   *facts
	timeout time.Duration
}

// ID of the rule.
func (p *Program) ID() policy.RuleID { return p.id }

// Kind of the rule.
func (p *Program) Kind() policy.Kind { return p.kind }

// Stage in which the rule is asked.
func (p *Program) Stage() appsv1alpha1.TransitionStage { return p.stage }

// Enforcement of the rule.
func (p *Program) Enforcement() appsv1alpha1.Enforcement { return p.enforcement }

// NeedsCounts says whether the result depends on the counts at all. Of a rule that does not, the
// room is nil and any counts will do.
func (p *Program) NeedsCounts() bool { return p.kind == policy.KindAvailablePolicy }

// Needs says which surroundings the rule reads. Evaluate may be given less of the others.
func (p *Program) Needs() Needs { return Needs{Counts: p.NeedsCounts()} }

// Source names what was compiled: a hash, in hex. An edit that makes another module makes another
// name.
func (p *Program) Source() string { return p.source }

// VerdictsNeedCounts says whether the verdicts, and not just the room, depend on the counts. That
// is so only for an availablePolicy that is not enforced: its Would says whether there was room.
//
// All other verdicts of a program depend on the pod and the operation alone. A caller may remember
// them by (program, pod UID, pod version, operation id, operation type) and ask only about
// the requests that it has no verdict for; the room of an availablePolicy it gets by asking about
// none.
func (p *Program) VerdictsNeedCounts() bool {
	return p.NeedsCounts() && p.enforcement != appsv1alpha1.EnforcementEnforce
}

// Evaluate asks the rule about the requests, which all wait in stage. The result has a verdict for
// each of them, whatever their order and number. No requests is a question for the room alone.
//
// An error withholds all of the requests: the context's own error when ctx or the engine's timeout
// ended the evaluation, ErrUndefined, a *PanicError, or an error of Rego.
func (p *Program) Evaluate(
	ctx context.Context, stage appsv1alpha1.TransitionStage, around policy.Surroundings, requests []policy.Request,
) (result policy.Result, err error) {
	defer func() {
		if value := recover(); value != nil {
			result, err = policy.Result{}, &PanicError{Value: value, Stack: debug.Stack()}
		}
		if err != nil {
			err = fmt.Errorf("evaluating rule %q: %w", p.id, err)
		}
	}()
	if len(requests) == 0 && !p.NeedsCounts() {
		return policy.Result{Verdicts: map[string]policy.Verdict{}}, nil
	}
	if err := p.check(stage, requests); err != nil {
		return policy.Result{}, err
	}
	result.Verdicts = make(map[string]policy.Verdict, len(requests))
	for start := 0; start == 0 || start < len(requests); start += batch {
		answered, err := p.evaluate(ctx, stage, around.Counts, requests[start:min(start+batch, len(requests))])
		if err != nil {
			return policy.Result{}, err
		}
		maps.Copy(result.Verdicts, answered.Verdicts)
		result.Room = answered.Room // the same for each batch: it comes from the counts alone
	}
	return result, nil
}

// evaluate asks about one batch.
func (p *Program) evaluate(
	ctx context.Context, stage appsv1alpha1.TransitionStage, counts policy.Counts, requests []policy.Request,
) (policy.Result, error) {
	keys, input := p.facts.input(stage, counts, requests)
	decision, err := p.decide(ctx, input)
	if err != nil {
		return policy.Result{}, err
	}
	return decode(decision, keys, p.NeedsCounts())
}

// check refuses questions that the rule was not made for.
func (p *Program) check(stage appsv1alpha1.TransitionStage, requests []policy.Request) error {
	if stage != p.stage {
		return fmt.Errorf("asked in stage %q, it is a rule of stage %q", stage, p.stage)
	}
	asked := make(map[string]bool, len(requests))
	for _, request := range requests {
		if request.Pod == nil {
			return errors.New("asked about a request without a pod")
		}
		if request.Stage != stage {
			return fmt.Errorf("asked about a request in stage %q together with stage %q", request.Stage, stage)
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

// decide evaluates the query.
func (p *Program) decide(ctx context.Context, input ast.Value) (*ast.Term, error) {
	ctx, stop := context.WithTimeout(ctx, p.timeout)
	defer stop()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	// With a Cancel of our own OPA needs no goroutine to watch the context.
	cancel := topdown.NewCancel()
	defer context.AfterFunc(ctx, cancel.Cancel)()

	results, err := p.query.Eval(ctx,
		rego.EvalParsedInput(input),
		rego.EvalExternalCancel(cancel),
		// No allowed builtin reads the clock or a random number. Should one ever slip in, it must
		// not make two evaluations of the same facts differ.
		rego.EvalTime(time.Unix(0, 0)),
		rego.EvalSeed(zeros{}),
	)
	if topdown.IsCancel(err) && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	if len(results) != 1 || len(results[0].Expressions) != 1 {
		return nil, ErrUndefined
	}
	term, ok := results[0].Expressions[0].Value.(*ast.Term)
	if !ok {
		return nil, ErrUndefined
	}
	return term, nil
}

// zeros reads as zero bytes without end.
type zeros struct{}

func (zeros) Read(buffer []byte) (int, error) {
	clear(buffer)
	return len(buffer), nil
}
