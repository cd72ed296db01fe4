package podtransitionrule

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/podindex"
	"github.com/podops-dev/podops/pkg/rule"
)

// reasonOf puts a verdict into words and numbers. Everything that tells people why a pod
// waits prints this one reason: events, status and the annotation on the pod.
func reasonOf(
	prepared *preparedRule, words *messageCache, ruleView podindex.RuleView, request rule.Request, verdict rule.Verdict, room *rule.Capacity,
) rule.Reason {
	code := cmp.Or(verdict.Code, verdict.Would, rule.CodeUndefined)
	reason := rule.Reason{
		Rule: prepared.id, Kind: prepared.kind, Stage: request.Stage, Code: code, Since: request.Since,
		Message: verdict.Message, Details: verdict.Details,
	}
	if reason.Message == "" {
		reason.Message = words.of(code, prepared.spec, request, room)
	}
	if code == rule.CodeNoRoom && room != nil {
		reason.Numbers = &rule.Numbers{Needed: 1, Have: room.Slots, Limit: limitOf(*room)}
		reason.BlockingPods = ruleView.Unavailable
	}
	return reason
}

// limitOf is how many pods a rule lets be unavailable, whichever of its bounds is the
// lower one.
func limitOf(room rule.Capacity) int {
	limit := room.Desired
	if room.MaxUnavailable >= 0 {
		limit = min(limit, room.MaxUnavailable)
	}
	if room.MinAvailable >= 0 {
		limit = min(limit, max(0, room.Desired-room.MinAvailable))
	}
	return limit
}

// byRank puts first what somebody has to do something about: a rule that is broken, then
// one that says no, then one that only wants the pod to come later.
func byRank(a, b rule.Reason) int {
	return cmp.Or(cmp.Compare(rankOf(a.Code), rankOf(b.Code)),
		cmp.Compare(a.Rule.Object.Name, b.Rule.Object.Name), cmp.Compare(a.Rule.Rule, b.Rule.Rule))
}

// maxReasons bounds the reasons of one PodTransitionRule for one request: what is not among
// the first is read when they are gone.
const maxReasons = 8

// ranked adds a reason to sorted ones, of which it drops the last of the same
// PodTransitionRule beyond maxReasons.
func ranked(reasons []rule.Reason, reason rule.Reason) []rule.Reason {
	at, _ := slices.BinarySearchFunc(reasons, reason, byRank)
	reasons = slices.Insert(reasons, at, reason)
	same, last := 0, 0
	for i := range reasons {
		if reasons[i].Rule.Object == reason.Rule.Object {
			same, last = same+1, i
		}
	}
	if same > maxReasons {
		reasons = slices.Delete(reasons, last, last+1)
	}
	return reasons
}

func rankOf(code rule.Code) int {
	switch code {
	case rule.CodeCompileFailed, rule.CodeTooLarge, rule.CodePolicyNotFound, rule.CodePolicyTooExpensive,
		rule.CodeEvaluationFailed, rule.CodeUndefined, rule.CodeWrongType:
		return 0
	case rule.CodeNoRoom, rule.CodeTimeout, rule.CodeNotReached, rule.CodeRuleDeleted, rule.CodeWebhookPending, rule.CodeWebhookProcessing:
		return 2
	default:
		return 1
	}
}

// blockedOf is a reason as status.blocked has it.
func blockedOf(request rule.Request, reason rule.Reason) appsv1alpha1.BlockedPod {
	blocked := appsv1alpha1.BlockedPod{
		Name: request.Pod.Name, Stage: request.Stage, ID: request.ID,
		Rule: reason.Rule.String(), Kind: string(reason.Kind), Reason: string(reason.Code), Message: reason.Message,
		BlockingPods: reason.BlockingPods, Since: timeOf(reason.Since), NextCheck: timeOf(reason.NextCheck),
	}
	if n := reason.Numbers; n != nil {
		blocked.Numbers = &appsv1alpha1.BlockedNumbers{Needed: int32(n.Needed), Have: int32(n.Have), Limit: int32(n.Limit)}
	}
	return blocked
}

const (
	// defaultNextCheck is how soon a rule that reads the time is asked again when it
	// does not say.
	defaultNextCheck = 15 * time.Second

	// A rule may ask for any delay; this is what it gets.
	shortestNextCheck = time.Second
	longestNextCheck  = 5 * time.Minute
)

// nextChecks remembers, per request, when a rule that reads the time is asked again, so
// that what people read does not change with every round.
type nextChecks map[string]time.Time

// of returns the next check of a withheld request. One that is due is set anew, and so is
// one that the rule wants sooner now.
func (n nextChecks) of(request rule.Request, verdict rule.Verdict, now time.Time) time.Time {
	key := request.Key()
	wait := cmp.Or(verdict.RetryAfter, defaultNextCheck)
	next := now.Add(min(max(wait, shortestNextCheck), longestNextCheck))
	if known, ok := n[key]; !ok || !known.After(now) || next.Before(known.Add(-shortestNextCheck)) {
		n[key] = next
	}
	return n[key]
}

// keep returns what is remembered of the requests that still wait.
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

// text returns a reason in one line, with its code.
func text(reason rule.Reason) string { return fmt.Sprintf("%s: %s", reason.Code, reason.Message) }

// rejectInfo are the reasons of one PodTransitionRule in the order of rule names, as
// deployed clients read them.
func rejectInfo(reasons []rule.Reason) []appsv1alpha1.RejectInfo {
	var infos []appsv1alpha1.RejectInfo
	for _, reason := range reasons {
		infos = append(infos, appsv1alpha1.RejectInfo{RuleName: reason.Rule.Rule, Reason: text(reason)})
	}
	slices.SortFunc(infos, func(a, b appsv1alpha1.RejectInfo) int { return cmp.Compare(a.RuleName, b.RuleName) })
	return infos
}

// timeOf is a time in a status; nil for none.
func timeOf(at time.Time) *metav1.Time {
	if at.IsZero() {
		return nil
	}
	t := statusTime(at)
	return &t
}

// statusTime is a time as it comes back from the API server, in whole seconds. With more
// than that in it a status would differ from the stored one for ever, and be written again
// every second.
func statusTime(at time.Time) metav1.Time { return metav1.NewTime(at.Truncate(time.Second)) }
