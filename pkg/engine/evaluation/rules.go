package evaluation

import (
	"errors"
	"slices"
	"strings"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/rule/imports"
	"github.com/podops-dev/podops/pkg/engine/opa"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
)

// preparedRule is one rule of a PodTransitionRule, ready to be evaluated, and its state.
type preparedRule struct {
	spec appsv1alpha1.TransitionRule
	id   rule.RuleID
	kind rule.Kind

	// webhook of the rule, in its canonical spelling; nil for other kinds.
	webhook *appsv1alpha1.TransitionRuleWebhook

	// policy is the version of the PodTransitionPolicy that it was compiled with.
	policy string

	// stage in which it is evaluated; empty for both, if a rule does not compile and its stage is unknown.
	stage appsv1alpha1.TransitionStage

	// program that is evaluated; nil: every request to which the rule could apply is withheld.
	program Program

	// err is why the program is a fallback, or is missing.
	err error

	ruleState
}

// ruleState is what changes about a rule from one round to the next.
type ruleState struct {
	// fallback is evaluated while the rule is under quarantine.
	fallback Program

	// remembered has the verdicts of the last round; nil when there is nothing to remember, or no memory for it.
	remembered *Recollection

	counters    *counters
	strikes     strikes
	quarantined *appsv1alpha1.Quarantine
}

// enforced reports whether the rule withholds pods. A rule with enforcement Warn or DryRun does not, even
// when it cannot be evaluated.
func (p *preparedRule) enforced() bool {
	return defaultedEnforcement(p.spec) == appsv1alpha1.EnforcementEnforce
}

// budget reports whether the rule bounds availability, so that permits of its pods are reserved.
func (p *preparedRule) budget() bool {
	return p.kind == rule.KindAvailablePolicy && p.stage == appsv1alpha1.StagePreCheck && p.enforced()
}

// recall returns what the rule remembers of its last round; nothing at first.
func (p *preparedRule) recall() *Recollection {
	if p.remembered != nil {
		return p.remembered
	}
	return &Recollection{}
}

// needs returns which parts of the environment the rule reads.
func (p *preparedRule) needs() opa.Needs {
	if p.program == nil {
		return opa.Needs{}
	}
	return p.program.Needs()
}

// dependsOnPods reports whether the verdict on a pod depends on the permits of other pods.
func (p *preparedRule) dependsOnPods() bool {
	return p.needs().Pods || p.needs().Permits || p.kind == rule.KindRego && p.needs().Counts
}

// strike counts missing answers of a module, the last one for a reason, and puts its rule under quarantine if there are too
// many. It reports whether it has done so.
func (p *preparedRule) strike(object *appsv1alpha1.PodTransitionRule, missed int, why string, now time.Time) bool {
	if p.quarantined != nil || !p.strikes.add(missed, now) {
		return false
	}
	p.quarantine(object, why, now)
	return true
}

// quarantine stops the evaluation of a rule until it is edited, or the quarantine is lifted.
func (p *preparedRule) quarantine(object *appsv1alpha1.PodTransitionRule, why string, now time.Time) {
	p.quarantined = &appsv1alpha1.Quarantine{
		Since: StatusTime(now), Source: p.program.Source(), Message: tooExpensive(why), Lift: liftRequest(object),
	}
}

// lift ends the quarantine of a rule if the annotation of its object has another value than when
// it began. Each value ends it once.
func (p *preparedRule) lift(object *appsv1alpha1.PodTransitionRule) {
	value := liftRequest(object)
	if p.quarantined == nil || value == "" || value == p.quarantined.Lift {
		return
	}
	p.quarantined, p.strikes = nil, nil
}

// unprepared reports whether there was no time yet to compile the module of the rule.
func (p *preparedRule) unprepared() bool {
	return p.err != nil && ErrorCode(p.err) == rule.CodeNotReached
}

// resume continues the counters and the quarantine of the rule from its status, after a restart.
func (p *preparedRule) resume(statuses []appsv1alpha1.RuleStatus) {
	for _, status := range statuses {
		if status.Name != p.spec.Name {
			continue
		}
		p.counters.resume(status)
		// Until the module is compiled it is assumed to be the module in the status.
		if p.unprepared() || p.err == nil && p.program != nil && isUnderQuarantine(&status, p.program.Source()) {
			p.quarantined = status.Quarantined.DeepCopy()
		}
	}
}

// newPrepared returns a rule without a program.
func newPrepared(object types.NamespacedName, entry appsv1alpha1.TransitionRule, shared imports.Policies) *preparedRule {
	prepared := &preparedRule{
		spec: entry, stage: defaultedStage(entry),
		policy: policyVersion(shared, entry), id: rule.RuleID{Ruleset: object, Rule: entry.Name},
	}
	if entry.Rego != nil {
		prepared.kind = rule.KindRego
	}
	prepared.webhook = normalized(entry).Webhook
	return prepared
}

// unloaded returns a rule that withholds every request of its stage, for a PodTransitionRule that is not loaded.
func unloaded(object types.NamespacedName, entry appsv1alpha1.TransitionRule, generation int64, why error) *preparedRule {
	return &preparedRule{
		spec: entry, stage: entry.Stage,
		id: rule.RuleID{Ruleset: object, Rule: entry.Name}, ruleState: ruleState{counters: newCounters(entry, generation)}, err: why,
	}
}

// evaluationCost orders the kinds of rules: cheap rules are evaluated first.
func evaluationCost(kind rule.Kind) int {
	return slices.Index([]rule.Kind{rule.KindLabelCheck, rule.KindApproval, rule.KindRego, rule.KindWebhook, rule.KindAvailablePolicy}, kind)
}

// joinErrors joins the compile errors of a PodTransitionRule.
func joinErrors(rules []*preparedRule) error {
	var all []error
	for _, rule := range rules {
		if rule.err != nil && !rule.unprepared() {
			all = append(all, rule.err)
		}
	}
	return errors.Join(all...)
}

// preparedRuleset are the rules of a PodTransitionRule in one generation, ready to be evaluated.
type preparedRuleset struct {
	// loaded is false before the rules are prepared for the first time.
	loaded bool

	uid        types.UID
	generation int64
	policies   string
	rules      []*preparedRule

	// resumes reports whether the status has the counters of the rules from before this process.
	resumes bool
}

// isComplete reports whether there was time to prepare all rules.
func (o preparedRuleset) isComplete() bool {
	return !slices.ContainsFunc(o.rules, (*preparedRule).unprepared)
}

// isMadeFrom reports whether the rules were prepared from this generation of the object and compiled with
// these versions of PodTransitionPolicies.
func (o preparedRuleset) isMadeFrom(object *appsv1alpha1.PodTransitionRule, versions string) bool {
	return o.uid == object.UID && o.generation == object.Generation && o.policies == versions
}

// unchanged returns the prepared rule that an edit did not change, with its state; nil for a new or
// changed rule.
func (o preparedRuleset) unchanged(uid types.UID, rule appsv1alpha1.TransitionRule, version string) *preparedRule {
	if o.uid != uid {
		return nil
	}
	for _, prepared := range o.rules {
		if !prepared.unprepared() && prepared.policy == version && apiequality.Semantic.DeepEqual(prepared.spec, rule) {
			return prepared
		}
	}
	return nil
}

// policyVersions returns the versions of the PodTransitionPolicies that a PodTransitionRule is compiled with.
func policyVersions(object *appsv1alpha1.PodTransitionRule, shared imports.Policies) string {
	versions := make([]string, 0, len(object.Spec.Rules))
	for _, rule := range object.Spec.Rules {
		versions = append(versions, policyVersion(shared, rule))
	}
	return strings.Join(versions, ",")
}
