package evaluation

import (
	"fmt"
	"strings"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/permit"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/runtime/text"
)

// exceptions are the reasons for which requests of an evaluation pass rules that withhold them.
type exceptions struct {
	hold Hold
	held map[string]time.Time
	now  time.Time

	// namespace and cluster are the reasons of break-glass annotations.
	namespace, cluster string
}

// exceptionFor returns why a request passes the rules of a PodTransitionRule, nil for a PodDisruptionBudget, and the text
// of the reason; empty when it does not.
func (x *exceptions) exceptionFor(object *appsv1alpha1.PodTransitionRule, request rule.Request) (rule.Exception, string) {
	if request.Stage != appsv1alpha1.StagePreCheck {
		return "", ""
	}
	switch {
	case request.Pod.BreakGlass != "":
		return rule.ExceptionBreakGlass, "of the pod: " + request.Pod.BreakGlass
	case x.namespace != "":
		return rule.ExceptionBreakGlass, "of the namespace: " + x.namespace
	case x.cluster != "":
		return rule.ExceptionBreakGlass, "of the cluster: " + x.cluster
	}
	if hold := x.hold.boundFor(object); hold.Action == appsv1alpha1.HoldRelease {
		if left, held := x.left(hold, request); held && left <= 0 {
			return rule.ExceptionMaxHold, fmt.Sprintf("held for %s", hold.Max)
		}
	}
	return "", ""
}

// exempt returns whether a rule exempts the revision of a request's pod, and the reason's text.
func exempt(entry appsv1alpha1.TransitionRule, request rule.Request) (rule.Exception, string) {
	state := request.Pod.Revision.State
	abandoned := state == rule.RevisionAbandoned && entry.ExemptRevisions == appsv1alpha1.ExemptAbandoned
	outdated := (state == rule.RevisionAbandoned || state == rule.RevisionOutdated) && entry.ExemptRevisions == appsv1alpha1.ExemptOutdated
	if request.Stage != appsv1alpha1.StagePreCheck || entry.AvailablePolicy != nil || !abandoned && !outdated {
		return "", ""
	}
	return rule.ExceptionRevision, fmt.Sprintf("revision %s is %s", text.Line(request.Pod.Revision.Current, maxRevisionBytes), strings.ToLower(string(state)))
}

// maxRevisionBytes bounds the revision in a text.
const maxRevisionBytes = 64

// exceptionForRule returns why a request passes a rule, and the text of the reason; empty when it does not.
func (x *exceptions) exceptionForRule(eval *Rule, request rule.Request) (rule.Exception, string) {
	if exception, reason := x.exceptionFor(eval.Object(), request); exception != "" {
		return exception, reason
	}
	return exempt(eval.prepared.spec, request)
}

// left returns the time for which a request may still be held, and whether that is bounded.
func (x *exceptions) left(hold Hold, request rule.Request) (time.Duration, bool) {
	if hold.Max == 0 || !isDeferred(request) {
		return 0, false
	}
	since, held := x.held[request.Key()]
	return hold.Max - x.now.Sub(since), held
}

// breakGlass returns the reason of the break-glass annotation that applies to all pods of the namespace; empty
// without the annotation.
func (x *exceptions) breakGlass() string {
	switch {
	case x.namespace != "":
		return "the namespace has the annotation " + appsv1alpha1.BreakGlassAnnotationKey + ": " + x.namespace
	case x.cluster != "":
		return "the namespace of the manager has the annotation " + appsv1alpha1.BreakGlassAnnotationKey + ": " + x.cluster
	default:
		return ""
	}
}

// observeHolds returns the times since which this process has observed the deferred requests of a snapshot, by
// request key. The time does not begin again while a request only gets another attempt.
func (s *State) observeHolds(snapshot Snapshot, hold Hold, now time.Time) map[string]time.Time {
	after := map[string]time.Time{}
	if hold.bounds(snapshot.Rules) {
		for _, request := range snapshot.Waiting {
			if !isDeferred(request) {
				continue
			}
			key := request.Key()
			since, known := s.held[key]
			if !known {
				since = now
			}
			after[key] = since
		}
	}
	s.held = after
	return after
}

// Undone has the hold of a request begin again.
func (s *State) Undone(request rule.Request) { delete(s.held, request.Key()) }

// waiveNeed waives a rule that needs a slot or is checked again: the candidate passes it with any verdict.
func waiveNeed(candidate *permit.Candidate, id rule.RuleID, exception rule.Exception) {
	if exception != "" {
		candidate.Waived = append(candidate.Waived, id)
	}
}
