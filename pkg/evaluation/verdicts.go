package evaluation

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/podops-dev/podops/pkg/rule"
	"github.com/podops-dev/podops/pkg/text"
)

// verdicts returns the verdicts of one rule for requests of its stage, in their order. version is the version
// of the list of requests. A rule that cannot be evaluated withholds; a rule with a fallback withholds where
// it applies.
func (w *evaluating) verdicts(ctx context.Context, work *ruleWork, requests []rule.Request, version uint64) []rule.Verdict {
	prepared := work.prepared
	switch {
	case work.run != nil && work.run.unopened:
		return work.notReached(w, requests)
	case work.run != nil:
		return w.verdictsOfModule(work)
	case prepared.quarantined != nil:
		return withheld(requests, rule.Verdict{Code: rule.CodePolicyTooExpensive, Message: prepared.quarantined.Message})
	case prepared.program == nil:
		verdict := rule.Verdict{Code: CodeOf(prepared.err)}
		if prepared.kind == rule.KindRego {
			verdict.Message = text.Prefix(prepared.err.Error(), rule.MaxMessageBytes)
		}
		if verdict.Code == rule.CodeNotReached {
			w.retryIn(RetryStale)
		}
		return withheld(requests, verdict)
	case prepared.needs().Namespace && work.env.Namespace.Labels == nil:
		w.retryIn(RetryStale)
		return withheld(requests, rule.Verdict{Code: rule.CodeUndefined, Message: errNamespaceUnseen.Error()})
	case !w.turn.hasTime(ctx, partForRules):
		return work.notReached(w, requests)
	}
	verdicts, capacity, err := work.recalled.Evaluate(ctx, prepared.program, prepared.stage, work.env, requests, version)
	if err != nil {
		work.ruleset.EvaluateErr = cmp.Or(work.ruleset.EvaluateErr, err)
		w.retryIn(RetryFailed)
		return withheld(requests, rule.Verdict{Code: rule.CodeEvaluationFailed})
	}
	work.capacity = capacity
	return verdicts
}

// notReached returns the verdicts of a rule that the round could not evaluate for any request. If they
// withhold, the other rules of the PodTransitionRule need not be evaluated in that stage.
func (w *ruleWork) notReached(all *evaluating, requests []rule.Request) []rule.Verdict {
	all.retryIn(RetryStale)
	if w.prepared.enforced() && w.prepared.stage != "" {
		w.unreached[w.prepared.stage] = true
	}
	return withheld(requests, notReached(w.prepared))
}

// withheld returns the same verdict for every request.
func withheld(requests []rule.Request, verdict rule.Verdict) []rule.Verdict {
	all := make([]rule.Verdict, len(requests))
	for i := range all {
		all[i] = verdict
	}
	return all
}

// verdictsOfModule returns the verdicts of a user's module, or of the fallback of a rule that cannot be
// evaluated.
func (w *evaluating) verdictsOfModule(work *ruleWork) []rule.Verdict {
	eval, prepared, run, verdicts := work.Rule, work.prepared, work.run, work.recalled.verdicts
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
		return withReasons(verdicts, CodeOf(prepared.err), prepared.err.Error())
	}
	if run.late > 0 {
		w.retryIn(RetryFailed)
	}
	eval.Late = run.late
	eval.IsQuarantined = prepared.strike(eval.ruleset.View.Object, run.late, run.lateBecause, eval.env.Now)
	return verdicts
}

// errNamespaceUnseen means that the watch has not delivered the namespace yet. Evaluated as a namespace without
// labels it might let pods pass.
var errNamespaceUnseen = errors.New("the namespace has not been seen yet")

// withReasons replaces the reasons of the verdicts of a fallback.
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
	if e.most = result.Capacity; e.most.Slots == 0 {
		e.ruleset.NeverPasses = append(e.ruleset.NeverPasses, e.prepared.spec.Name)
	}
}

// Delays of the next round of a namespace.
const (
	// RetryStale is the delay while something is missing that is expected at once: the watch has not
	// delivered the pods that a record requires, or the round had no time for all rules. The watch is usually
	// behind by milliseconds.
	RetryStale = 50 * time.Millisecond

	// RetryBackground is the delay when a background write is postponed (Slot).
	RetryBackground = 100 * time.Millisecond

	// RetryFailed is the delay after which rules are evaluated again that have failed. Usually the machine
	// was busy.
	RetryFailed = 5 * time.Second
)
