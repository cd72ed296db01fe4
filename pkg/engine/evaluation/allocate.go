package evaluation

import (
	"cmp"
	"context"
	"time"

	"github.com/podops-dev/podops/pkg/core/permit"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/runtime/backoff"
	"github.com/podops-dev/podops/pkg/runtime/text"
	"k8s.io/apimachinery/pkg/types"
)

// Allocation has the candidates of an evaluation that get a permit. It is not modified after Allocate
// has returned it.
type Allocation struct {
	// findings are the denials of candidates. They add to the denials of the evaluation.
	findings

	// finders find requests in the recollections of rules.
	finders map[rule.RuleID]func(rule.Request) (int, bool)

	// Plan has the permits.
	Plan permit.Plan

	Effects

	// Retry is the delay after which the rules are evaluated again although nothing has changed; 0 for never.
	Retry time.Duration
}

// Allocate gives slots and permits to the candidates of an evaluation. Rules that depend on other pods are
// evaluated again for each candidate, with the permits that were allocated before it.
func (e Evaluation) Allocate(ctx context.Context, t *Turn, now time.Time) Allocation {
	a := &Allocation{findings: newFindings()}
	a.earlier, a.finders = &e.findings, map[rule.RuleID]func(rule.Request) (int, bool){}
	a.Plan = permit.Next(e.budgets, e.candidates, e.recheck(ctx, t, a), now)
	for _, denial := range a.Plan.Denied {
		if eval, ok := e.Rules[denial.Rule]; ok {
			a.retryIn(a.withhold(t, a.remark(eval, denial.Request), eval, denial.Request, denial.Verdict))
		}
		if budget, ok := e.disruptions[denial.Rule]; ok {
			a.withholdFor(t, denial.Request, budget.noRoom(denial.Request))
		}
	}
	return *a
}

// retryIn has the rules evaluated again after a delay, unless that happens sooner; 0 changes nothing.
func (a *Allocation) retryIn(delay time.Duration) { a.Retry = backoff.MinDelay(a.Retry, delay) }

// recheck returns a function that evaluates one rule again for one request, with the permits that were
// allocated before. Requests that a round has no time to recheck are rechecked in a later round.
func (e Evaluation) recheck(ctx context.Context, t *Turn, a *Allocation) permit.Recheck {
	return func(id rule.RuleID, request rule.Request, committed permit.Committed) (rule.Verdict, bool) {
		eval := e.Rules[id]
		if !t.goesOn(ctx, partForRechecks) {
			a.retryIn(RetryStale)
			if !eval.prepared.enforced() {
				return rule.Verdict{Outcome: rule.Passed}, true
			}
			return rule.Verdict{}, false
		}
		if stopped := eval.prepared.quarantined; stopped != nil {
			return unlessEnforced(eval, rule.Verdict{Code: rule.CodePolicyTooExpensive, Message: stopped.Message})
		}
		result, err := eval.prepared.program.Evaluate(t.inLane(ctx), eval.prepared.stage, eval.given(committed), []rule.Request{request})
		t.charge(result.CPUTime)
		if err != nil {
			a.retryIn(RetryFailed)
			return unlessEnforced(eval, rule.Verdict{Code: rule.CodeEvaluationFailed, Message: text.Prefix(err.Error(), rule.MaxMessageBytes)})
		}
		verdict := result.Verdicts[request.Key()]
		switch cmp.Or(verdict.Code, verdict.Would) {
		case rule.CodeTimeout:
			a.retryIn(RetryFailed)
			a.strike(eval, 1, verdict.Message)
		case rule.CodeNotReached:
			a.retryIn(RetryStale)
		default: // a verdict
		}
		a.retryIn(a.would(t, a.remark(eval, request), eval, request, verdict))
		return unlessEnforced(eval, verdict)
	}
}

// remark returns what a rule remembers about a request; nothing when it remembers nothing.
func (a *Allocation) remark(eval *Rule, request rule.Request) remark {
	known := eval.prepared.remembered
	if known == nil {
		return remark{of: &Recollection{notes: make([]note, 1)}}
	}
	if a.finders[eval.ID()] == nil {
		find, i := finder(known.requests), -1
		a.finders[eval.ID()] = func(request rule.Request) (int, bool) { i++; return find(i, &request) }
	}
	at, ok := a.finders[eval.ID()](request)
	if !ok {
		return remark{of: &Recollection{notes: make([]note, 1)}}
	}
	return remark{of: known, at: at}
}

// given returns the environment of a rule with the permits that were allocated before.
func (e *Rule) given(committed permit.Committed) rule.Environment {
	env := e.env
	env.Committed = map[types.UID]bool{}
	for uid := range committed.Pods {
		env.Committed[uid] = true
	}
	env.Counts.Reserved += committed.Reserved
	if e.prepared.needs().Permits {
		env.Permits = committed.Permits
	}
	return env
}

// unlessEnforced returns the verdict of an enforced rule. A rule that is not enforced denies nothing, even
// when it fails.
func unlessEnforced(eval *Rule, verdict rule.Verdict) (rule.Verdict, bool) {
	if !eval.prepared.enforced() {
		return rule.Verdict{Outcome: rule.Passed}, true
	}
	return verdict, true
}
