package evaluation

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/runtime/backoff"
)

// Outcome is an evaluation with the permits that were allocated from it.
type Outcome struct {
	Evaluation
	Allocation Allocation
}

// Reasons returns why a request waits, sorted by rank; nil when it does not. Only requests that the
// evaluation does not withhold are allocated.
func (o Outcome) Reasons(key string) []rule.Reason {
	if reasons := o.withheld[key]; len(reasons) > 0 {
		return reasons
	}
	return o.Allocation.withheld[key]
}

// Warnings returns why a request would wait if rules with enforcement Warn were enforced, sorted by rank.
func (o Outcome) Warnings(key string) []rule.Reason {
	warned := o.warned[key]
	for _, reason := range o.Allocation.warned[key] {
		warned = ranked(warned[:len(warned):len(warned)], reason)
	}
	return warned
}

// maxNamedRules bounds the rules that PassedBy names.
const maxNamedRules = 5

// PassedBy returns the names of the enforced rules that a request passed, sorted: the first of them, and how
// many more there are.
func (o Outcome) PassedBy(request rule.Request) []string {
	var names []string
	for id, eval := range o.Rules {
		_, evaluated := o.Allocation.find(id, request.Key())
		if evaluated && eval.prepared.enforced() && eval.prepared.counters.scope.Applies(request.Type, request.Pod.Labels, request.Pod.SkipRules) {
			names = append(names, id.String())
		}
	}
	slices.Sort(names)
	if more := len(names) - maxNamedRules; more > 0 {
		names = append(names[:maxNamedRules:maxNamedRules], fmt.Sprintf("and %d more", more))
	}
	return names
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

// VerdictState is the decision of a rule about a request.
type VerdictState string

// The states of a verdict.
const (
	// VerdictPermitted means that the rule permits the request.
	VerdictPermitted VerdictState = "Permitted"

	// VerdictWithheld means that the request waits for the rule.
	VerdictWithheld VerdictState = "Withheld"

	// VerdictWouldWithhold means that the rule would withhold the request if it were enforced.
	VerdictWouldWithhold VerdictState = "WouldWithhold"

	// VerdictNotApplicable means that the rule is for other operations or pods, or that the pod skips it.
	VerdictNotApplicable VerdictState = "NotApplicable"

	// VerdictWaived means that the request passes the rule although the rule withholds it.
	VerdictWaived VerdictState = "Waived"

	// VerdictNotEvaluated means that another rule of the PodTransitionRule withheld the request before.
	VerdictNotEvaluated VerdictState = "NotEvaluated"
)

// RuleVerdict is the verdict of one rule on one request.
type RuleVerdict struct {
	Rule  *Rule
	ID    rule.RuleID
	Kind  rule.Kind
	State VerdictState

	// Reason is why the rule withholds the request, or would; nil for other states.
	Reason *rule.Reason

	// Waiver is why the request passes; nil for other states than VerdictWaived.
	Waiver *rule.Waiver

	// Calls reports whether the service of a webhook rule would be called for the request.
	Calls bool
}

// Verdicts returns the verdicts on a request, by the rules of its stage sorted by name, and then of
// PodDisruptionBudgets that withhold it.
func (o Outcome) Verdicts(request rule.Request) []RuleVerdict {
	var verdicts []RuleVerdict
	for id, eval := range o.Rules {
		if eval.prepared.stage != "" && eval.prepared.stage != request.Stage {
			continue
		}
		if _, evaluated := o.Allocation.find(id, request.Key()); !evaluated && !isSelected(eval, request) {
			continue
		}
		verdicts = append(verdicts, o.verdict(id, eval, request))
	}
	slices.SortFunc(verdicts, func(a, b RuleVerdict) int {
		return cmp.Or(cmp.Compare(a.ID.Ruleset.Name, b.ID.Ruleset.Name), cmp.Compare(a.ID.Rule, b.ID.Rule))
	})
	for _, reason := range o.Reasons(request.Key()) {
		if _, ofRule := o.Rules[reason.Rule]; !ofRule {
			verdicts = append(verdicts, RuleVerdict{ID: reason.Rule, Kind: reason.Kind, State: VerdictWithheld, Reason: &reason})
		}
	}
	return verdicts
}

// isSelected reports whether the PodTransitionRule of a rule selects the pod of a request.
func isSelected(eval *Rule, request rule.Request) bool {
	key := request.Key()
	return slices.ContainsFunc(eval.ruleset.View.Waiting, func(other rule.Request) bool { return other.Key() == key })
}

func (o Outcome) verdict(id rule.RuleID, eval *Rule, request rule.Request) RuleVerdict {
	prepared, key := eval.prepared, request.Key()
	verdict := RuleVerdict{Rule: eval, ID: id, Kind: prepared.kind, State: VerdictPermitted, Calls: eval.callsFor(key)}
	found, evaluated := o.Allocation.find(id, key)
	waived := slices.IndexFunc(o.waived[key], func(waiver rule.Waiver) bool { return waiver.Rule == id })
	switch {
	case !prepared.counters.scope.Applies(request.Type, request.Pod.Labels, request.Pod.SkipRules):
		verdict.State = VerdictNotApplicable
	case found.withheld != nil:
		verdict.State, verdict.Reason = VerdictWithheld, found.withheld
	case waived >= 0:
		verdict.State, verdict.Waiver = VerdictWaived, &o.waived[key][waived]
	case found.would != nil:
		verdict.State, verdict.Reason = VerdictWouldWithhold, found.would
	case !evaluated:
		verdict.State = VerdictNotEvaluated
	}
	return verdict
}

// callsFor reports whether a call of the rule includes a request.
func (e *Rule) callsFor(key string) bool {
	if e.Calls == nil {
		return false
	}
	for _, post := range e.Calls.Posts {
		if slices.ContainsFunc(post.Requests, func(request rule.Request) bool { return request.Key() == key }) {
			return true
		}
	}
	return false
}

// IsPermitted reports whether the allocation gives a request its permit.
func (o Outcome) IsPermitted(key string) bool {
	return slices.ContainsFunc(o.Allocation.Plan.Grants, func(granted rule.Request) bool { return granted.Key() == key })
}

// Count adds the findings of a round to the counters of the rules, keeps the pods that had no turn, and
// returns the numbers that it added.
func (s *State) Count(t *Turn, o Outcome, now time.Time) []Count {
	s.missed = o.Allocation.Plan.Missed
	var counts []Count
	for _, eval := range o.Rules {
		if !eval.skipped {
			counts = append(counts, s.countRule(t, o, eval, now))
		}
	}
	return counts
}

// countRule adds the findings of a round to the counters of one rule.
func (s *State) countRule(t *Turn, o Outcome, eval *Rule, now time.Time) Count {
	prepared, remembered := eval.prepared, eval.prepared.recall()
	count := Count{Rule: prepared.id, Enforcement: prepared.counters.status.Enforcement}
	if len(remembered.requests) == 0 {
		remembered.align(inStage(eval.ruleset.View.Waiting, prepared.stage), 0)
	}
	for i, request := range remembered.requests {
		found, _ := o.Allocation.find(prepared.id, request.Key())
		prepared.counters.count(found, &remembered.notes[i].counted, &count, now)
	}
	s.keep(prepared, remembered, t.remember)
	return count
}
