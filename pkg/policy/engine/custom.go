package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/topdown"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/policy"
)

// evaluateEach asks a user's module about one request after the other, so that a conflict, an error
// or a timeout of one is nobody else's.
func (p *Program) evaluateEach(ctx context.Context, from policy.Surroundings, requests []policy.Request) policy.Result {
	round, stop := context.WithTimeout(ctx, p.engine.options.RoundBudget)
	defer stop()
	if from.Namespace.Name == "" && len(requests) > 0 {
		from.Namespace.Name = requests[0].Pod.Namespace
	}
	around := p.engine.facts.around(from, p.shape.needs)
	result := policy.Result{Verdicts: make(map[string]policy.Verdict, len(requests))}
	for _, request := range requests {
		result.Verdicts[request.Key()] = p.evaluateOne(ctx, round, around, request)
	}
	return result
}

// evaluateOne asks about one request, if a slot is free before the round is over. The wait is not
// part of the module's time.
func (p *Program) evaluateOne(ctx, round context.Context, around around, request policy.Request) (verdict policy.Verdict) {
	defer func() {
		if value := recover(); value != nil {
			verdict = p.failed(&PanicError{Value: value, Stack: debug.Stack()})
		}
	}()
	if round.Err() != nil {
		return p.failed(errNotReached)
	}
	select {
	case p.engine.slots <- struct{}{}:
		defer func() { <-p.engine.slots }()
	case <-round.Done():
		return p.failed(errNotReached)
	}
	input := p.engine.facts.customInput(p.rule, p.parameters, around, request)
	began := time.Now()
	given := p.engine.askWatched(ctx, p.shape, input)
	p.observe(input, began, given.err, func() (json.RawMessage, error) {
		return given.output, cmp.Or(given.err, given.outputErr)
	})
	if given.err != nil {
		return p.failed(given.err)
	}
	return given.verdict
}

var errNotReached = errors.New("no time was left in this round")

// failed is the verdict of a module that gave no decision. A rule that is not enforced holds nothing
// back, not even when it is broken.
func (p *Program) failed(err error) policy.Verdict {
	code, message := explained(err)
	if p.enforcement != appsv1alpha1.EnforcementEnforce {
		return policy.Verdict{Outcome: policy.Passed, Would: code, Message: message}
	}
	return policy.Verdict{Code: code, Message: message}
}

// plainMessage is the message of OPA in one line, without our names for the file and for builtins.
func plainMessage(message string) string {
	if rest, bounded := strings.CutPrefix(message, boundedPrefix); bounded {
		_, message, _ = strings.Cut(rest, ": ")
		if _, inner, nested := strings.Cut(message, topdown.BuiltinErr+": "); nested {
			message = inner
		}
	}
	return strings.ReplaceAll(strings.Join(strings.Fields(message), " "), moduleFile+":", "row ")
}

// explained is an error of one request, for people.
func explained(err error) (policy.Code, string) {
	located := &topdown.Error{}
	switch {
	case errors.Is(err, errNotReached), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return policy.CodeNotReached, errNotReached.Error()
	case errors.Is(err, ErrTimeout):
		return policy.CodeTimeout, messageText(err.Error())
	case errors.Is(err, ErrUndefined):
		return policy.CodeUndefined, ""
	case errors.As(err, &located) && located.Location != nil && located.Location.File == moduleFile:
		return policy.CodeEvaluationFailed, messageText(fmt.Sprintf("%d:%d: %s: %s",
			located.Location.Row, located.Location.Col, located.Code, plainMessage(located.Message)))
	default:
		return policy.CodeEvaluationFailed, messageText(err.Error())
	}
}
