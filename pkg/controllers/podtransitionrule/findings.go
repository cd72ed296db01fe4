package podtransitionrule

import (
	"cmp"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/rule"
)

// findings are the verdicts that hold requests back, or would. The evaluation and the allocation of permits
// have findings of their own.
type findings struct {
	// withheld has the reasons by request key, sorted by rank.
	withheld map[string][]rule.Reason

	// warned has the reasons of rules with enforcement Warn, by request key.
	warned map[string][]rule.Reason

	// byRule has the findings of each rule by request key.
	byRule map[rule.RuleID]map[string]finding

	// earlier are the findings that these add to; nil for none.
	earlier *findings
}

// finding is the verdict of a rule on a request in one round. The request is nil when there was no memory to
// keep more (findings.file).
type finding struct {
	request *rule.Request

	// withheld or would is set when the rule denied the request; would when it is not enforced.
	withheld, would *rule.Reason
}

func newFindings() findings {
	return findings{
		withheld: map[string][]rule.Reason{}, warned: map[string][]rule.Reason{}, byRule: map[rule.RuleID]map[string]finding{},
	}
}

// file keeps the finding of a rule on a request. Without memory for it the request counts as one for
// which the rule was not evaluated; that it is withheld is kept elsewhere.
func (f findings) file(t *turn, id rule.RuleID, key string, found finding) {
	if f.byRule[id] == nil {
		f.byRule[id] = map[string]finding{}
	}
	if _, known := f.of(id, key); known || t.holds(findingBytes) {
		f.byRule[id][key] = found
	}
}

// of returns the finding of a rule on a request.
func (f findings) of(id rule.RuleID, key string) (finding, bool) {
	found, ok := f.byRule[id][key]
	if !ok && f.earlier != nil {
		return f.earlier.of(id, key)
	}
	return found, ok
}

// withhold files that a rule holds a request back, and returns when to evaluate the rule again; 0 for never.
func (f findings) withhold(
	t *turn, remembered *recollection, eval *ruleEvaluation, request rule.Request, verdict rule.Verdict,
) (retry time.Duration) {
	key := request.Key()
	if len(f.withheld[key]) > 0 && !t.holds(2*reasonBytes) {
		return 0
	}
	reason, retry := eval.reason(remembered, request, verdict)
	t.held += int64(len(reason.Message) + len(reason.Details))
	f.withheld[key] = ranked(f.withheld[key], reason)
	f.file(t, eval.prepared.id, key, finding{request: &request, withheld: &reason})
	return retry
}

// would files that a rule that is not enforced would hold a request back, if it would. It returns when to
// evaluate the rule again; 0 for never.
func (f findings) would(
	t *turn, remembered *recollection, eval *ruleEvaluation, request rule.Request, verdict rule.Verdict,
) (retry time.Duration) {
	if eval.prepared.enforced() || verdict.Outcome == rule.Passed && verdict.Would == "" {
		return 0
	}
	if cmp.Or(verdict.Code, verdict.Would) == rule.CodeNotReached || !t.holds(2*reasonBytes) {
		return 0
	}
	key := request.Key()
	reason, retry := eval.reason(remembered, request, verdict)
	t.held += int64(len(reason.Message) + len(reason.Details))
	if found, _ := f.of(eval.prepared.id, key); eval.prepared.spec.Enforcement == appsv1alpha1.EnforcementWarn && found.would == nil {
		f.warned[key] = ranked(f.warned[key], reason)
	}
	f.file(t, eval.prepared.id, key, finding{request: &request, would: &reason})
	return retry
}

// reason explains a verdict, and returns when to evaluate the rule again where the verdict changes by
// itself; 0 for never.
func (e *ruleEvaluation) reason(
	remembered *recollection, request rule.Request, verdict rule.Verdict,
) (reason rule.Reason, retry time.Duration) {
	reason = reasonOf(e.prepared, remembered.messageCache, e.ruleset.view, request, verdict, e.capacity)
	switch {
	case e.calls != nil:
		// openCalls schedules the next call.
		reason.NextCheck = request.Task.RetryAt
	case e.prepared.enforced() && (verdict.RetryAfter > 0 || e.prepared.needs().Now && reason.Code != rule.CodeNotReached):
		reason.NextCheck = remembered.nextChecks.of(request, verdict, e.env.Now)
		retry = max(reason.NextCheck.Sub(e.env.Now), time.Millisecond)
	}
	return reason, retry
}

// outcome is an evaluation with the permits that were allocated from it.
type outcome struct {
	evaluation
	allocation allocation
}

// reasons returns why a request waits, sorted by rank; nil when it does not. Only requests that the
// evaluation does not withhold are allocated.
func (o outcome) reasons(key string) []rule.Reason {
	if reasons := o.withheld[key]; len(reasons) > 0 {
		return reasons
	}
	return o.allocation.withheld[key]
}

// warnings returns why a request would wait if rules with enforcement Warn were enforced, sorted by rank.
func (o outcome) warnings(key string) []rule.Reason {
	warned := o.warned[key]
	for _, reason := range o.allocation.warned[key] {
		warned = ranked(warned[:len(warned):len(warned)], reason)
	}
	return warned
}
