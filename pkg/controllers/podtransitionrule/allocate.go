package podtransitionrule

import (
	"cmp"
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/pkg/permit"
	"github.com/podops-dev/podops/pkg/rule"
)

// allocation is which candidates of an evaluation get a permit. It is not modified after allocate has
// returned it.
type allocation struct {
	// findings are the denials of candidates. They add to those of the evaluation.
	findings

	plan permit.Plan

	// late is the number of evaluations of each rule that used up their CPU time without a verdict.
	late map[rule.RuleID]int

	// quarantined are the rules that went under quarantine meanwhile.
	quarantined []*ruleEvaluation

	// retry is the delay after which the rules are evaluated again although nothing has changed; 0 for never.
	retry time.Duration
}

// allocate gives slots and permits to the candidates of an evaluation. Rules that depend on other pods are
// evaluated again for each candidate, with the permits that were allocated before it.
func (r *Reconciler) allocate(ctx context.Context, t *turn, evaluated evaluation) allocation {
	a := &allocation{findings: newFindings(), late: map[rule.RuleID]int{}}
	a.earlier = &evaluated.findings
	a.plan = permit.Next(evaluated.budgets, evaluated.candidates, r.recheck(ctx, t, evaluated, a), r.clock.Now())
	for _, denial := range a.plan.Refused {
		if eval, ok := evaluated.rules[denial.Rule]; ok {
			r.state.with(eval.prepared, func(remembered *recollection) {
				a.retryIn(a.withhold(t, remembered, eval, denial.Request, denial.Verdict))
			})
		}
	}
	return *a
}

// retryIn has the rules evaluated again after a delay, unless that happens sooner; 0 changes nothing.
func (a *allocation) retryIn(delay time.Duration) { a.retry = minDelay(a.retry, delay) }

// recheck returns a function that evaluates one rule again for one request, with the permits that were
// allocated before. A round that has used its time checks the rest in a later one.
func (r *Reconciler) recheck(ctx context.Context, t *turn, evaluated evaluation, a *allocation) permit.Recheck {
	return func(id rule.RuleID, request rule.Request, committed permit.Committed) (rule.Verdict, bool) {
		eval := evaluated.rules[id]
		if !t.goesOn(ctx, partForRechecks) {
			a.retryIn(retryStale)
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
			a.retryIn(retryFailed)
			return unlessEnforced(eval, rule.Verdict{Code: rule.CodeEvaluationFailed, Message: bounded(err.Error(), rule.MaxMessageBytes)})
		}
		verdict := result.Verdicts[request.Key()]
		switch cmp.Or(verdict.Code, verdict.Would) {
		case rule.CodeTimeout:
			a.late[id]++
			a.retryIn(retryFailed)
			if eval.prepared.strike(eval.ruleset.view.Object, 1, eval.env.Now) {
				a.quarantined = append(a.quarantined, eval)
			}
		case rule.CodeNotReached:
			a.retryIn(retryStale)
		default: // a verdict
		}
		r.state.with(eval.prepared, func(remembered *recollection) {
			a.retryIn(a.would(t, remembered, eval, request, verdict))
		})
		return unlessEnforced(eval, verdict)
	}
}

// given returns the environment of a rule with the permits that were allocated before.
func (e *ruleEvaluation) given(committed permit.Committed) rule.Environment {
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
func unlessEnforced(eval *ruleEvaluation, verdict rule.Verdict) (rule.Verdict, bool) {
	if !eval.prepared.enforced() {
		return rule.Verdict{Outcome: rule.Passed}, true
	}
	return verdict, true
}
