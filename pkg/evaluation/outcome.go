package evaluation

import (
	"cmp"
	"slices"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/rule"
)

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

	// Calls reports whether a call of the service of a webhook rule would be made for the request.
	Calls bool
}

// Verdicts returns the verdicts on a request, of the rules of its stage sorted by name, and then of
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

// Enforcement returns the effect of a denial of the rule.
func (e *Rule) Enforcement() appsv1alpha1.Enforcement { return enforcementOf(e.prepared.spec) }
