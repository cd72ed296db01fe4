package evaluation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/backoff"
	"github.com/podops-dev/podops/pkg/permit"
	"github.com/podops-dev/podops/pkg/podindex"
	"github.com/podops-dev/podops/pkg/rule"
	"github.com/podops-dev/podops/pkg/text"
)

// Hold bounds the time for which rules hold back a delete or an eviction that PodOps defers.
type Hold struct {
	// Max is the bound; 0 is no bound.
	Max time.Duration

	// Action is the action on a request that is held for longer than Max; Undo if empty.
	Action appsv1alpha1.HoldAction
}

// boundFor returns the bound of a PodTransitionRule: its own, or else the receiver, which is the bound of the manager. object
// is nil for a PodDisruptionBudget, and for a PodTransitionRule that was deleted.
func (h Hold) boundFor(object *appsv1alpha1.PodTransitionRule) Hold {
	if object != nil {
		if own := object.Spec.MaxHold; own != nil {
			h.Max = own.Duration
		}
		h.Action = cmp.Or(object.Spec.OnMaxHold, h.Action)
	}
	h.Action = cmp.Or(h.Action, appsv1alpha1.HoldUndo)
	return h
}

// bounds reports whether a PodTransitionRule of a snapshot, or the manager, bounds holds.
func (h Hold) bounds(snapshot Snapshot) bool {
	return h.Max > 0 || slices.ContainsFunc(snapshot.Rules, func(view podindex.RuleView) bool { return view.Object.Spec.MaxHold != nil })
}

// isDeferred reports whether a request is for a delete or an eviction that PodOps defers.
func isDeferred(request rule.Request) bool {
	return request.Stage == appsv1alpha1.StagePreCheck && request.ID == appsv1alpha1.PodDeleteID && request.Type == appsv1alpha1.DeleteOperationType
}

// observeHolds returns the times since which this process has observed the deferred requests of a snapshot, by
// request key. The time does not begin again while a request only gets another attempt.
func (s *State) observeHolds(snapshot Snapshot, hold Hold, now time.Time) map[string]time.Time {
	after := map[string]time.Time{}
	if hold.bounds(snapshot) {
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

// exempt returns whether a rule exempts the revision of the pod of a request, and the text of the reason.
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

// Expired is a request that was held for the maximum time, and whose operation is to be cancelled.
type Expired struct {
	Request rule.Request

	// Rule withholds it, for at most Max.
	Rule rule.RuleID
	Max  time.Duration
}

// Expired returns the requests whose operations are to be cancelled because they were held for the maximum
// time, and the delay until the next hold ends; 0 for never.
func (o Outcome) Expired(requests []rule.Request) (expired []Expired, wait time.Duration) {
	for _, request := range requests {
		if !isDeferred(request) {
			continue
		}
		for _, reason := range o.Reasons(request.Key()) {
			var object *appsv1alpha1.PodTransitionRule
			if ruleset := o.Rulesets[reason.Rule.Ruleset.Name]; ruleset != nil {
				object = ruleset.View.Object
			}
			hold := o.exceptions.hold.boundFor(object)
			left, bounded := o.exceptions.left(hold, request)
			if bounded && left > 0 {
				wait = backoff.MinDelay(wait, left)
			}
			if bounded && left <= 0 && hold.Action == appsv1alpha1.HoldUndo {
				expired = append(expired, Expired{Request: request, Rule: reason.Rule, Max: hold.Max})
				break
			}
		}
	}
	return expired, wait
}

// Undone has the hold of a request begin again.
func (s *State) Undone(request rule.Request) { delete(s.held, request.Key()) }

// waive files that a request passes a rule that withholds it.
func (f findings) waive(t *Turn, request rule.Request, waiver rule.Waiver) {
	key := request.Key()
	if len(f.waived[key]) >= MaxReasons || len(f.waived[key]) > 0 && !t.holds(2*ReasonBytes) {
		return
	}
	f.waived[key] = append(f.waived[key], waiver)
}

// Waivers returns the rules that a granted request passed although they withhold it, by their names; the first
// of them.
func (o Outcome) Waivers(request rule.Request) []rule.Waiver {
	waivers := slices.Clone(o.waived[request.Key()])
	for _, denial := range o.Allocation.Plan.Waived {
		if denial.Request.Key() != request.Key() {
			continue
		}
		exception, reason := o.exceptions.exceptionFor(nil, request)
		if eval := o.Rules[denial.Rule]; eval != nil {
			exception, reason = o.exceptions.exceptionForRule(eval, request)
		}
		waivers = append(waivers, rule.Waiver{Rule: denial.Rule, Code: cmp.Or(denial.Verdict.Code, rule.CodeUndefined), Exception: exception, Reason: reason})
	}
	slices.SortFunc(waivers, func(a, b rule.Waiver) int { return cmp.Compare(a.Rule.String(), b.Rule.String()) })
	return waivers
}

// waiveNeed waives a rule that needs a slot or is checked again: the candidate passes it with any verdict.
func waiveNeed(candidate *permit.Candidate, id rule.RuleID, exception rule.Exception) {
	if exception != "" {
		candidate.Waived = append(candidate.Waived, id)
	}
}
