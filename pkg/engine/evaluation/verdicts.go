package evaluation

import (
	"cmp"
	"context"
	"errors"

	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/runtime/text"
)

// verdicts returns the verdicts of one rule for requests of its stage, in their order. version is that
// of the list of requests. A rule that cannot be evaluated withholds; a rule with a fallback withholds where
// it applies.
func (w *evaluating) verdicts(
	ctx context.Context, eval *Rule, recalled *Recollection, requests []rule.Request, version uint64,
) []rule.Verdict {
	prepared, run := eval.prepared, w.modules[eval.prepared]
	switch {
	case run != nil && run.unopened:
		return w.notReached(eval, requests)
	case run != nil:
		return w.moduleVerdicts(eval, run)
	case prepared.quarantined != nil:
		return withheld(requests, rule.Verdict{Code: rule.CodePolicyTooExpensive, Message: prepared.quarantined.Message})
	case prepared.program == nil:
		verdict := rule.Verdict{Code: ErrorCode(prepared.err)}
		if prepared.kind == rule.KindRego {
			verdict.Message = text.Prefix(prepared.err.Error(), rule.MaxMessageBytes)
		}
		if verdict.Code == rule.CodeNotReached {
			w.retryIn(RetryStale)
		}
		return withheld(requests, verdict)
	case prepared.needs().Namespace && eval.env.Namespace.Labels == nil:
		w.retryIn(RetryStale)
		return withheld(requests, rule.Verdict{Code: rule.CodeUndefined, Message: errNamespaceUnseen.Error()})
	case !w.turn.hasTime(ctx, partForRules):
		return w.notReached(eval, requests)
	}
	verdicts, capacity, err := recalled.Evaluate(ctx, prepared.program, prepared.stage, eval.env, requests, version)
	if err != nil {
		eval.ruleset.EvaluateErr = cmp.Or(eval.ruleset.EvaluateErr, err)
		w.retryIn(RetryFailed)
		return withheld(requests, rule.Verdict{Code: rule.CodeEvaluationFailed})
	}
	eval.capacity = capacity
	return verdicts
}

// notReached returns the verdicts of a rule that the round could not evaluate for any request. If they
// withhold, the other rules of the PodTransitionRule need not be evaluated in that stage.
func (w *evaluating) notReached(eval *Rule, requests []rule.Request) []rule.Verdict {
	w.retryIn(RetryStale)
	if eval.prepared.enforced() && eval.prepared.stage != "" {
		eval.ruleset.unreached[eval.prepared.stage] = true
	}
	return withheld(requests, notReached(eval.prepared))
}

// withheld returns the same verdict for every request.
func withheld(requests []rule.Request, verdict rule.Verdict) []rule.Verdict {
	all := make([]rule.Verdict, len(requests))
	for i := range all {
		all[i] = verdict
	}
	return all
}

// moduleVerdicts returns the verdicts that a user's module gave, or the fallback of a rule that cannot be
// evaluated.
func (w *evaluating) moduleVerdicts(eval *Rule, run *moduleRun) []rule.Verdict {
	prepared, verdicts := eval.prepared, run.recalled.verdicts
	if run.err != nil {
		eval.ruleset.EvaluateErr = cmp.Or(eval.ruleset.EvaluateErr, run.err)
		w.retryIn(RetryFailed)
	}
	if len(run.open) > 0 {
		w.retryIn(RetryStale)
	}
	switch {
	case run.stopped && prepared.quarantined != nil:
		return withReasons(verdicts, rule.CodePolicyTooExpensive, prepared.quarantined.Message)
	case prepared.err != nil:
		return withReasons(verdicts, ErrorCode(prepared.err), prepared.err.Error())
	}
	if run.late > 0 {
		w.retryIn(RetryFailed)
	}
	w.strike(eval, run.late, run.lateBecause)
	return verdicts
}

// errNamespaceUnseen means that the watch has not delivered the namespace yet. Evaluated as a namespace without
// labels it might let pods pass.
var errNamespaceUnseen = errors.New("the namespace has not been seen yet")

// withReasons replaces the reasons of a fallback's verdicts.
func withReasons(verdicts []rule.Verdict, code rule.Code, message string) []rule.Verdict {
	all := make([]rule.Verdict, len(verdicts))
	for i, verdict := range verdicts {
		all[i] = withReason(verdict, code, message)
	}
	return all
}

// findMost finds the capacity of an availability rule if every pod were available, and whether it never passes.
func (e *Rule) findMost(ctx context.Context) {
	counts := e.ruleset.View.Counts
	total := max(counts.Desired, counts.Selected)
	if e.prepared.err != nil || total == 0 {
		return
	}
	counts.Available, counts.Reserved = total, 0
	result, err := e.prepared.program.Evaluate(ctx, e.prepared.stage, rule.Environment{Counts: counts}, nil)
	if err != nil || result.Capacity == nil {
		return
	}
	e.most = result.Capacity
	policy := e.prepared.spec.AvailablePolicy
	surges := spec.Surges(policy) && e.ruleset.View.MaySurge
	if !surges && spec.PermitsNone(policy, total) != "" {
		e.ruleset.NeverPasses = append(e.ruleset.NeverPasses, e.prepared.spec.Name)
	}
}
