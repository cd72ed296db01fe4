package evaluation

import (
	"cmp"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
)

// findings are the verdicts that hold requests back, or would. Evaluation and allocation
// have findings of their own.
type findings struct {
	// withheld has the reasons by request key, sorted by rank.
	withheld map[string][]rule.Reason

	// warned has the reasons of rules with enforcement Warn, by request key.
	warned map[string][]rule.Reason

	// waived has the rules that a request passes although they withhold it, by request key.
	waived map[string][]rule.Waiver

	// byRule has the findings of each rule by request key.
	byRule map[rule.RuleID]map[string]finding

	// earlier are the findings of the round's earlier steps, to which these are added; nil in the
	// first step.
	earlier *findings
}

func newFindings() findings {
	return findings{
		withheld: map[string][]rule.Reason{}, warned: map[string][]rule.Reason{}, waived: map[string][]rule.Waiver{},
		byRule: map[rule.RuleID]map[string]finding{},
	}
}

// file keeps the finding of a rule on a request. Without memory for the finding the rule counts as
// not evaluated for the request; the reason that withholds the request is kept elsewhere.
func (f findings) file(t *Turn, id rule.RuleID, key string, found finding) {
	if f.byRule[id] == nil {
		f.byRule[id] = map[string]finding{}
	}
	if _, known := f.find(id, key); known || t.holds(findingBytes) {
		f.byRule[id][key] = found
	}
}

// find returns the finding of a rule on a request.
func (f findings) find(id rule.RuleID, key string) (finding, bool) {
	found, ok := f.byRule[id][key]
	if !ok && f.earlier != nil {
		return f.earlier.find(id, key)
	}
	return found, ok
}

// withhold files that a rule holds a request back, and returns when to evaluate the rule again; 0 for never.
func (f findings) withhold(
	t *Turn, remembered remark, eval *Rule, request rule.Request, verdict rule.Verdict,
) (retry time.Duration) {
	key := request.Key()
	if len(f.withheld[key]) > 0 && !t.holds(2*ReasonBytes) {
		return 0
	}
	reason, retry := eval.reason(remembered, request, verdict)
	t.held += int64(len(reason.Message) + len(reason.Details))
	f.withheld[key] = ranked(f.withheld[key], reason)
	f.file(t, eval.prepared.id, key, finding{request: &request, withheld: &reason})
	return retry
}

// withholdFor files a reason that belongs to no rule of a PodTransitionRule.
func (f findings) withholdFor(t *Turn, request rule.Request, reason rule.Reason) {
	key := request.Key()
	if len(f.withheld[key]) > 0 && !t.holds(2*ReasonBytes) {
		return
	}
	t.held += int64(len(reason.Message))
	f.withheld[key] = ranked(f.withheld[key], reason)
}

// would files that a rule that is not enforced would hold a request back, if it would. It returns when to
// evaluate the rule again; 0 for never.
func (f findings) would(
	t *Turn, remembered remark, eval *Rule, request rule.Request, verdict rule.Verdict,
) (retry time.Duration) {
	if eval.prepared.enforced() || verdict.Outcome == rule.Passed && verdict.Would == "" {
		return 0
	}
	if cmp.Or(verdict.Code, verdict.Would) == rule.CodeNotReached || !t.holds(2*ReasonBytes) {
		return 0
	}
	key := request.Key()
	reason, retry := eval.reason(remembered, request, verdict)
	t.held += int64(len(reason.Message) + len(reason.Details))
	if found, _ := f.find(eval.prepared.id, key); eval.prepared.spec.Enforcement == appsv1alpha1.EnforcementWarn && found.would == nil {
		f.warned[key] = ranked(f.warned[key], reason)
	}
	f.file(t, eval.prepared.id, key, finding{request: &request, would: &reason})
	return retry
}

// waive files that a request passes a rule that withholds it.
func (f findings) waive(t *Turn, request rule.Request, waiver rule.Waiver) {
	key := request.Key()
	if len(f.waived[key]) >= MaxReasons || len(f.waived[key]) > 0 && !t.holds(2*ReasonBytes) {
		return
	}
	f.waived[key] = append(f.waived[key], waiver)
}
