package evaluation

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/runtime/text"
)

// reason returns a verdict as a message with numbers, and when to evaluate the rule again where the verdict changes
// with time alone; 0 for never. Events, status and the annotation on the pod all print this one reason.
func (e *Rule) reason(remembered remark, request rule.Request, verdict rule.Verdict) (reason rule.Reason, retry time.Duration) {
	code := cmp.Or(verdict.Code, verdict.Would, rule.CodeUndefined)
	reason = rule.Reason{
		Rule: e.prepared.id, Kind: e.prepared.kind, Stage: request.Stage, Code: code, Since: request.Since,
		Message: verdict.Message, Details: verdict.Details,
	}
	if reason.Message == "" {
		reason.Message = remembered.of.explain(remembered.at, code, e.prepared.spec, request, e.capacity)
	}
	if code == rule.CodeNoRoom && e.capacity != nil {
		reason.Numbers = &rule.Numbers{Needed: 1, Have: e.capacity.Slots, Limit: availabilityLimit(*e.capacity)}
		if with := e.ruleset.View.With[request.Pod.UID]; with > 0 {
			reason.Numbers.Needed += with
			reason.Message = text.Cut(fmt.Sprintf("%d pods that go with it become unavailable, too: %s", with, reason.Message), rule.MaxMessageBytes)
		}
		reason.BlockingPods = e.ruleset.View.Unavailable
	}
	switch {
	case e.Calls != nil:
		// openCalls schedules the next call.
		reason.NextCheck = request.Task.RetryAt
	case code == rule.CodeRevisionDenied && request.Approval != nil && request.Approval.Next.After(e.env.Now):
		reason.NextCheck = request.Approval.Next
		retry = max(reason.NextCheck.Sub(e.env.Now), time.Millisecond)
	case e.prepared.enforced() && (verdict.RetryAfter > 0 || e.prepared.needs().Now && code != rule.CodeNotReached):
		reason.NextCheck = remembered.of.notes[remembered.at].schedule(verdict, e.env.Now)
		retry = max(reason.NextCheck.Sub(e.env.Now), time.Millisecond)
	}
	return reason, retry
}

// byRank orders reasons: first rules that need an edit, then rules that deny, then rules that the pod
// passes later without an edit.
func byRank(a, b rule.Reason) int {
	return cmp.Or(cmp.Compare(rule.Rank(a.Code), rule.Rank(b.Code)),
		cmp.Compare(a.Rule.Ruleset.Name, b.Rule.Ruleset.Name), cmp.Compare(a.Rule.Rule, b.Rule.Rule))
}

// MaxReasons bounds the reasons of one PodTransitionRule for one request. The others appear once the first
// no longer apply.
const MaxReasons = 8

// ranked returns sorted reasons with a reason added, without the last reason of the same PodTransitionRule
// beyond MaxReasons.
func ranked(reasons []rule.Reason, reason rule.Reason) []rule.Reason {
	at, _ := slices.BinarySearchFunc(reasons, reason, byRank)
	reasons = slices.Insert(reasons, at, reason)
	same, last := 0, 0
	for i := range reasons {
		if reasons[i].Rule.Ruleset == reason.Rule.Ruleset {
			same, last = same+1, i
		}
	}
	if same > MaxReasons {
		reasons = slices.Delete(reasons, last, last+1)
	}
	return reasons
}
