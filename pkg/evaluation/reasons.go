package evaluation

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podops-dev/podops/pkg/podindex"
	"github.com/podops-dev/podops/pkg/rule"
	"github.com/podops-dev/podops/pkg/text"
)

// reasonOf returns a verdict as a message with numbers. Events, status and the annotation on the pod all
// print this one reason.
func reasonOf(
	prepared *preparedRule, messages *messageCache, ruleView podindex.RuleView, request rule.Request, verdict rule.Verdict, capacity *rule.Capacity,
) rule.Reason {
	code := cmp.Or(verdict.Code, verdict.Would, rule.CodeUndefined)
	reason := rule.Reason{
		Rule: prepared.id, Kind: prepared.kind, Stage: request.Stage, Code: code, Since: request.Since,
		Message: verdict.Message, Details: verdict.Details,
	}
	if reason.Message == "" {
		reason.Message = messages.explain(code, prepared.spec, request, capacity)
	}
	if code == rule.CodeNoRoom && capacity != nil {
		reason.Numbers = &rule.Numbers{Needed: 1, Have: capacity.Slots, Limit: limitOf(*capacity)}
		if with := ruleView.With[request.Pod.UID]; with > 0 {
			reason.Numbers.Needed += with
			reason.Message = text.Cut(fmt.Sprintf("%d pods that go with it become unavailable, too: %s", with, reason.Message), rule.MaxMessageBytes)
		}
		reason.BlockingPods = ruleView.Unavailable
	}
	return reason
}

// limitOf returns the number of pods that may be unavailable under a rule, by the lower of its
// bounds.
func limitOf(capacity rule.Capacity) int {
	limit := capacity.Desired
	if capacity.MaxUnavailable >= 0 {
		limit = min(limit, capacity.MaxUnavailable)
	}
	if capacity.MinAvailable >= 0 {
		limit = min(limit, max(0, capacity.Desired-capacity.MinAvailable))
	}
	return limit
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

const (
	// defaultNextCheck is the delay after which a rule that reads the time is evaluated again, unless it
	// returns a delay.
	defaultNextCheck = 15 * time.Second

	// The delay that a rule returns is bounded by these.
	shortestNextCheck = time.Second
	longestNextCheck  = 5 * time.Minute
)

// nextChecks has, per request, when a rule that reads the time is evaluated again, so that the status does
// not change with every round.
type nextChecks map[string]time.Time

// schedule returns the next check of a withheld request. A check is set again when it is due or when the rule
// requires it sooner.
func (n nextChecks) schedule(request rule.Request, verdict rule.Verdict, now time.Time) time.Time {
	key := request.Key()
	wait := cmp.Or(verdict.RetryAfter, defaultNextCheck)
	next := now.Add(min(max(wait, shortestNextCheck), longestNextCheck))
	if known, ok := n[key]; !ok || !known.After(now) || next.Before(known.Add(-shortestNextCheck)) {
		n[key] = next
	}
	return n[key]
}

// keep returns the next checks of the requests that still wait.
func (n nextChecks) keep(requests []rule.Request) nextChecks {
	kept := nextChecks{}
	if len(n) == 0 {
		return kept
	}
	for _, request := range requests {
		key := request.Key()
		if at, known := n[key]; known {
			kept[key] = at
		}
	}
	return kept
}

// StatusTime returns a time in whole seconds, as the API server stores it. With fractions a status would
// always differ from the stored status, and be written every second.
func StatusTime(at time.Time) metav1.Time { return metav1.NewTime(at.Truncate(time.Second)) }
