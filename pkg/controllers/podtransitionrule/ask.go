package podtransitionrule

import (
	"cmp"
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/permit"
	"github.com/podops-dev/podops/pkg/rule"
)

// verdicts are those of one rule for requests of its stage, in their order. A rule that
// cannot be evaluated withholds; one with a stand-in withholds where it applies.
func (r *Reconciler) verdicts(ctx context.Context, eval *ruleEvaluation, d *decision, requests []rule.Request) []rule.Verdict {
	prepared := eval.prepared
	switch {
	case eval.run != nil:
		return r.verdictsOf(eval.run, d)
	case eval.unopened:
		return eval.notReached(d, requests)
	case prepared.quarantined != nil:
		return withheld(requests, rule.Verdict{Code: rule.CodePolicyTooExpensive, Message: prepared.quarantined.Message})
	case prepared.program == nil:
		verdict := rule.Verdict{Code: codeOf(prepared.err)}
		if prepared.kind == rule.KindRego {
			verdict.Message = bounded(prepared.err.Error(), rule.MaxMessageBytes)
		}
		if verdict.Code == rule.CodeNotReached {
			d.retry = minDelay(d.retry, retryStale)
		}
		return withheld(requests, verdict)
	case prepared.needs().Namespace && eval.env.Namespace.Labels == nil:
		d.retry = minDelay(d.retry, retryStale)
		return withheld(requests, rule.Verdict{Code: rule.CodeUndefined, Message: errNamespaceUnseen.Error()})
	case !d.turn.hasTime(ctx, partForRules):
		return eval.notReached(d, requests)
	}
	scope := scopeOf(prepared.program, prepared.kind)
	answer, err := eval.open().memo.Evaluate(ctx, prepared.program, scope, prepared.stage, eval.env, requests)
	if err != nil {
		eval.object.evaluateErr = cmp.Or(eval.object.evaluateErr, err)
		d.retry = minDelay(d.retry, retryFailed)
		return withheld(requests, rule.Verdict{Code: rule.CodeEvaluationFailed})
	}
	eval.room = answer.Capacity
	return answer.Verdicts
}

// notReached are the verdicts of a rule that the round could not ask about any request. Once they
// withhold, those of the other rules of the object would say the same.
func (s *ruleEvaluation) notReached(d *decision, requests []rule.Request) []rule.Verdict {
	d.retry = minDelay(d.retry, retryStale)
	if s.prepared.enforced() && s.prepared.stage != "" {
		if s.object.unreached == nil {
			s.object.unreached = map[appsv1alpha1.TransitionStage]bool{}
		}
		s.object.unreached[s.prepared.stage] = true
	}
	return withheld(requests, notReached(s.prepared))
}

// withheld is the same verdict for every request.
func withheld(requests []rule.Request, verdict rule.Verdict) []rule.Verdict {
	all := make([]rule.Verdict, len(requests))
	for i := range all {
		all[i] = verdict
	}
	return all
}

// verdictsOf are those of a user's module, or of the stand-in of a rule that cannot be
// evaluated.
func (r *Reconciler) verdictsOf(run *moduleRun, d *decision) []rule.Verdict {
	eval, prepared := run.eval, run.eval.prepared
	if run.err != nil {
		eval.object.evaluateErr = cmp.Or(eval.object.evaluateErr, run.err)
		d.retry = minDelay(d.retry, retryFailed)
	}
	if len(run.open) > 0 {
		d.retry = minDelay(d.retry, retryStale)
	}
	switch {
	case run.stopped && prepared.quarantined != nil:
		return withReasons(run.verdicts, rule.CodePolicyTooExpensive, prepared.quarantined.Message)
	case prepared.err != nil:
		return withReasons(run.verdicts, codeOf(prepared.err), prepared.err.Error())
	}
	r.watchDeadlines(eval, d, run.late)
	return run.verdicts
}

// errNamespaceUnseen: a namespace is news that has not come yet. Taken for one without
// labels it might open a door.
var errNamespaceUnseen = errors.New("the namespace has not been seen yet")

func withReasons(verdicts []rule.Verdict, code rule.Code, message string) []rule.Verdict {
	all := make([]rule.Verdict, len(verdicts))
	for i, verdict := range verdicts {
		all[i] = withReason(verdict, code, message)
	}
	return all
}

// watchDeadlines counts the evaluations in which a user's module used up its CPU time, has the
// requests evaluated again, and puts the rule under quarantine when it is too much.
func (r *Reconciler) watchDeadlines(eval *ruleEvaluation, d *decision, late int) {
	prepared := eval.prepared
	if late > 0 {
		d.retry = minDelay(d.retry, retryFailed)
	}
	r.metrics.late(prepared.id, late)
	if prepared.quarantined == nil && prepared.strikes.add(late, eval.env.Now) {
		prepared.quarantine(eval.object.view.Object, eval.env.Now)
		r.recordQuarantine(eval)
	}
}

// neverPasses asks an availability rule what it would give if every pod were
// available.
func (r *Reconciler) neverPasses(ctx context.Context, counts rule.Counts, prepared *preparedRule) bool {
	total := max(counts.Desired, counts.Selected)
	if prepared.err != nil || total == 0 {
		return false
	}
	counts.Available, counts.Reserved = total, 0
	if never := prepared.never; never.known && never.counts == counts {
		return !never.passes
	}
	result, err := prepared.program.Evaluate(ctx, prepared.stage, rule.Environment{Counts: counts}, nil)
	if err != nil || result.Capacity == nil {
		return false
	}
	prepared.never = neverPasses{known: true, counts: counts, passes: result.Capacity.Slots > 0}
	return !prepared.never.passes
}

// judge asks one rule about one request again, with what was taken before it is its
// turn. Rules that read no other pods are not asked a second time. When the round has to give
// way the rest follows in a later one.
func (r *Reconciler) recheck(ctx context.Context, d *decision) permit.Recheck {
	return func(id rule.RuleID, request rule.Request, taken permit.Committed) (rule.Verdict, bool) {
		eval := d.rules[id]
		if !d.turn.goesOn(ctx, partForJudges) {
			d.retry = minDelay(d.retry, retryStale)
			if !eval.prepared.enforced() {
				return rule.Verdict{Outcome: rule.Passed}, true
			}
			return rule.Verdict{}, false
		}
		if stopped := eval.prepared.quarantined; stopped != nil {
			return unlessEnforced(eval, rule.Verdict{Code: rule.CodePolicyTooExpensive, Message: stopped.Message})
		}
		env := eval.env
		env.Committed = map[types.UID]bool{}
		for uid := range taken.Pods {
			env.Committed[uid] = true
		}
		env.Counts.Reserved += taken.Reserved
		if eval.prepared.needs().Permits {
			env.Permits = taken.Permits
		}
		result, err := eval.prepared.program.Evaluate(d.turn.inLane(ctx), eval.prepared.stage, env, []rule.Request{request})
		d.turn.charge(result.CPUTime)
		if err != nil {
			d.retry = minDelay(d.retry, retryFailed)
			return unlessEnforced(eval, rule.Verdict{Code: rule.CodeEvaluationFailed, Message: bounded(err.Error(), rule.MaxMessageBytes)})
		}
		verdict := result.Verdicts[request.Key()]
		late := 0
		switch cmp.Or(verdict.Code, verdict.Would) {
		case rule.CodeTimeout:
			late = 1
		case rule.CodeNotReached:
			d.retry = minDelay(d.retry, retryStale)
		default: // it answered
		}
		r.watchDeadlines(eval, d, late)
		d.would(eval, request, verdict)
		return unlessEnforced(eval, verdict)
	}
}

// unlessEnforced: a rule that is not enforced refuses nobody, even when it fails.
func unlessEnforced(eval *ruleEvaluation, verdict rule.Verdict) (rule.Verdict, bool) {
	if !eval.prepared.enforced() {
		return rule.Verdict{Outcome: rule.Passed}, true
	}
	return verdict, true
}

// count takes what was found in this round into the counters of the rules.
func (r *Reconciler) count(d *decision, now time.Time) {
	for _, object := range d.objects {
		for _, eval := range object.rules {
			r.metrics.quarantine(eval.prepared.id, eval.prepared.quarantined != nil)
			if eval.calls != nil {
				tasks, oldest := eval.calls.tasks.Running()
				r.metrics.running(eval.prepared.id, tasks, oldest)
			}
			if eval.skipped {
				continue
			}
			findings := make([]finding, 0, len(eval.findings))
			for _, request := range inStage(object.view.Waiting, eval.prepared.stage) {
				findings = append(findings, eval.findings[request.Key()])
			}
			eval.prepared.counters.known = eval.open().counted
			asked, withheld, would := eval.prepared.counters.count(findings, now)
			eval.recalled.counted, eval.prepared.counters.known = eval.prepared.counters.known, nil
			eval.close()
			r.metrics.counted(eval.prepared.id, eval.prepared.counters.status.Enforcement, asked, withheld, would)
		}
	}
}

// ruleStatuses are the counters of an object, in the order of spec.rules.
func ruleStatuses(object *rulesetEvaluation) []appsv1alpha1.RuleStatus {
	var statuses []appsv1alpha1.RuleStatus
	for _, rule := range object.view.Object.Spec.Rules {
		for _, eval := range object.rules {
			if eval.prepared.spec.Name != rule.Name || len(statuses) == appsv1alpha1.MaxStatusRules {
				continue
			}
			status := eval.prepared.counters.status.DeepCopy()
			status.Quarantined = eval.prepared.quarantined.DeepCopy()
			statuses = append(statuses, *status)
		}
	}
	return statuses
}
