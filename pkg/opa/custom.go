package opa

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/topdown"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/cputime"
	"github.com/podops-dev/podops/pkg/opa/limits"
	"github.com/podops-dev/podops/pkg/opa/vet"
	"github.com/podops-dev/podops/pkg/rule"
)

// evaluateEach evaluates a user's module for one request after the other, so that a conflict, an
// error or a timeout affects only the verdict of its own request.
func (p *Program) evaluateEach(ctx context.Context, from rule.Environment, requests []rule.Request) rule.Result {
	round, stop := context.WithTimeout(ctx, p.engine.options.RoundBudget)
	defer stop()
	if from.Namespace.Name == "" && len(requests) > 0 {
		from.Namespace.Name = requests[0].Pod.Namespace
	}
	result := rule.Result{Verdicts: make(map[string]rule.Verdict, len(requests))}
	ready, used, err := p.readyAt(round)
	result.CPUTime = used
	if err != nil {
		for _, request := range requests {
			result.Verdicts[request.Key()] = p.failed(err)
		}
		return result
	}
	ready.env = p.engine.terms.env(from, p.info.needs)
	for _, request := range requests {
		verdict, used := p.evaluateOne(ctx, round, ready, request)
		result.Verdicts[request.Key()] = verdict
		result.CPUTime += used
	}
	return result
}

// ready holds the values that all requests of one Evaluate of a user's module share.
type ready struct {
	program *compiled
	documents
	env env
}

// readyAt returns ready and the CPU time that it took: a module that the engine no longer holds is
// compiled at the expense of the calling namespace. Otherwise a namespace with many modules would
// have them compiled in each round at no cost of its own.
func (p *Program) readyAt(ctx context.Context) (from ready, used time.Duration, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	watch := cputime.Start()
	from, err = p.ready(ctx)
	return from, watch.Used(), err
}

// ready compiles the module and parses the documents again if the engine no longer holds them.
func (p *Program) ready(ctx context.Context) (ready, error) {
	program, err := p.compiled(ctx)
	if err != nil {
		return ready{}, err
	}
	read, err := p.documents()
	return ready{program: program, documents: read}, err
}

// evaluateOne evaluates the module for one request, if a slot is free before the round is over. The
// wait for the slot does not count as CPU time of the module. used is the CPU time of the
// evaluation.
func (p *Program) evaluateOne(
	ctx, round context.Context, from ready, request rule.Request,
) (verdict rule.Verdict, used time.Duration) {
	defer func() {
		if value := recover(); value != nil {
			verdict = p.failed(&PanicError{Value: value, Stack: debug.Stack()})
		}
	}()
	if round.Err() != nil || !p.engine.slots.acquire(round) {
		return p.failed(errNotReached), 0
	}
	defer p.engine.slots.release(round)
	input := p.engine.terms.customInput(from.rule, from.parameters, from.env, request)
	began := time.Now()
	given := p.engine.evaluateWatched(ctx, from.program, input)
	if p.engine.options.Observe != nil {
		p.observe(input, []rule.Request{request}, began, 1, given.err, func() (json.RawMessage, error) {
			return given.output, cmp.Or(given.err, given.outputErr)
		})
	}
	if given.err != nil {
		return p.failed(given.err), given.used
	}
	return from.program.missingReason.explain(given.verdict, input), given.used
}

var (
	errNotReached = errors.New("no time was left in this round")
	errBusy       = errors.New("the machine was too busy to evaluate the module")
)

// failed returns the verdict of a module that gave no decision. A rule that is not enforced
// withholds nothing, even when it is broken.
func (p *Program) failed(err error) rule.Verdict {
	code, message := explained(err)
	if p.enforcement != appsv1alpha1.EnforcementEnforce {
		return rule.Verdict{Outcome: rule.Passed, Would: code, Message: message}
	}
	return rule.Verdict{Code: code, Message: message}
}

// plainMessage returns a message of OPA as one line, without PodOps' own names for the file and for
// bounded builtins.
func plainMessage(message string) string {
	if rest, bounded := strings.CutPrefix(message, limits.Prefix); bounded {
		_, message, _ = strings.Cut(rest, ": ")
		if _, inner, nested := strings.Cut(message, topdown.BuiltinErr+": "); nested {
			message = inner
		}
	}
	return strings.ReplaceAll(strings.Join(strings.Fields(message), " "), vet.File+":", "row ")
}

// explained returns the code and the readable message of the error of one request.
func explained(err error) (rule.Code, string) {
	located := &topdown.Error{}
	switch {
	case errors.Is(err, errNotReached), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return rule.CodeNotReached, ""
	case errors.Is(err, errBusy):
		return rule.CodeNotReached, errBusy.Error()
	case errors.Is(err, ErrTimeout):
		return rule.CodeTimeout, boundedMessage(err.Error())
	case errors.Is(err, ErrUndefined):
		return rule.CodeUndefined, ""
	case errors.As(err, &located) && located.Location != nil && located.Location.File == vet.File:
		return rule.CodeEvaluationFailed, boundedMessage(fmt.Sprintf("%d:%d: %s: %s",
			located.Location.Row, located.Location.Col, located.Code, plainMessage(located.Message)))
	default:
		return rule.CodeEvaluationFailed, boundedMessage(err.Error())
	}
}
