package evaluation

import (
	"context"
	"errors"
	"slices"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/objectbounds"
	"github.com/podops-dev/podops/pkg/opa"
	"github.com/podops-dev/podops/pkg/rule"
	"github.com/podops-dev/podops/pkg/rule/spec"
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
	return enforcementOf(p.spec) == appsv1alpha1.EnforcementEnforce
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

// preparedRuleset are the rules of one generation of a PodTransitionRule, ready to be evaluated.
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

// isOf reports whether the rules were prepared from this generation of the object and compiled with
// these versions of PodTransitionPolicies.
func (o preparedRuleset) isOf(object *appsv1alpha1.PodTransitionRule, versions string) bool {
	return o.uid == object.UID && o.generation == object.Generation && o.policies == versions
}

// rulesOf returns the prepared rules of a PodTransitionRule: without disabled rules, cheap rules first and
// rules that take slots last. An edit prepares only the rules that it changed, or whose PodTransitionPolicy
// changed. A rule whose module the round has no time to compile has no program; the next call compiles it.
func (e *Evaluator) rulesOf(
	ctx context.Context, t *Turn, state *State, object *appsv1alpha1.PodTransitionRule, shared policies,
) []*preparedRule {
	key, ruleset := types.NamespacedName{Namespace: object.Namespace, Name: object.Name}, state.ruleset(object.Name)
	versions, known := versionsOf(object, shared), ruleset.prepared
	if known.loaded && known.isOf(object, versions) && known.isComplete() {
		return known.rules
	}
	next := preparedRuleset{loaded: true, uid: object.UID, generation: object.Generation, policies: versions}
	next.resumes = !known.loaded && object.Status.ObservedGeneration == object.Generation ||
		known.resumes && !known.isComplete() && known.generation == object.Generation
	tooLarge := objectbounds.TooLarge(object)
	for _, rule := range object.Spec.Rules {
		if rule.Disabled {
			continue
		}
		if tooLarge != nil {
			next.rules = append(next.rules, unloaded(key, rule, object.Generation, tooLarge))
			continue
		}
		prepared := known.unchanged(object.UID, rule, shared.versionOf(rule))
		if prepared == nil {
			prepared = e.prepareInTime(ctx, t, key, rule, shared)
			prepared.counters = newCounters(rule, object.Generation)
			if next.resumes {
				prepared.resume(object.Status.Rules)
			}
		}
		next.rules = append(next.rules, prepared)
	}
	slices.SortStableFunc(next.rules, func(a, b *preparedRule) int { return costOf(a.kind) - costOf(b.kind) })
	if ctx.Err() == nil {
		ruleset.prepared = next
		state.forgetRules(known.rules, next.rules)
	}
	return next.rules
}

var errNotCompiled = errors.New("the module has not been compiled yet: the rules of the namespace used up the time of this round")

// prepareInTime prepares a rule, or returns it without a program when its module has to be
// compiled and the round has no time for that.
func (e *Evaluator) prepareInTime(
	ctx context.Context, t *Turn, object types.NamespacedName, entry appsv1alpha1.TransitionRule, shared policies,
) *preparedRule {
	if entry.Rego == nil || e.isCompiled(entry, shared) {
		return e.prepare(ctx, object, entry, shared)
	}
	if !t.mayCompile(ctx) {
		prepared := newPrepared(object, entry, shared)
		prepared.err = &unusableRuleError{rule.CodeNotReached, errNotCompiled}
		return prepared
	}
	began := t.clock.Now()
	prepared := e.prepare(ctx, object, entry, shared)
	t.charge(t.clock.Since(began)) // most of it in another process
	return prepared
}

// isCompiled reports whether a rule can be prepared without the compiler: its module is compiled, or it has
// no module.
func (e *Evaluator) isCompiled(rule appsv1alpha1.TransitionRule, shared policies) bool {
	custom, err := customOf(rule, shared)
	return err != nil || e.engine.IsCompiled(custom.Source, custom.ParametersSchema)
}

// versionsOf returns the versions of the PodTransitionPolicies that a PodTransitionRule is compiled with.
func versionsOf(object *appsv1alpha1.PodTransitionRule, shared policies) string {
	versions := make([]string, 0, len(object.Spec.Rules))
	for _, rule := range object.Spec.Rules {
		versions = append(versions, shared.versionOf(rule))
	}
	return strings.Join(versions, ",")
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

// costOf orders the kinds of rules: cheap rules are evaluated first.
func costOf(kind rule.Kind) int {
	return slices.Index([]rule.Kind{rule.KindLabelCheck, rule.KindRego, rule.KindWebhook, rule.KindAvailablePolicy}, kind)
}

// newPrepared returns a rule without a program.
func newPrepared(object types.NamespacedName, entry appsv1alpha1.TransitionRule, shared policies) *preparedRule {
	prepared := &preparedRule{
		spec: entry, stage: stageOf(entry),
		policy: shared.versionOf(entry), id: rule.RuleID{Ruleset: object, Rule: entry.Name},
	}
	if entry.Rego != nil {
		prepared.kind = rule.KindRego
	}
	prepared.webhook = normalized(entry).Webhook
	return prepared
}

// unprepared reports whether there was no time yet to compile the module of the rule.
func (p *preparedRule) unprepared() bool {
	return p.err != nil && CodeOf(p.err) == rule.CodeNotReached
}

func (e *Evaluator) prepare(
	ctx context.Context, object types.NamespacedName, rule appsv1alpha1.TransitionRule, shared policies,
) *preparedRule {
	prepared := newPrepared(object, rule, shared)
	module, err := ModuleOf(ctx, e.engine, object, rule, shared)
	if err == nil {
		prepared.kind, prepared.stage = module.Kind, module.Stage
		var ready Program
		if ready, err = e.engine.Prepare(ctx, module); err == nil {
			prepared.program = ready
			if e.prepared != nil {
				e.prepared(module)
			}
			return prepared
		}
		err = &unusableRuleError{inspectionCode(err), err}
	}
	prepared.err = err
	if fallback := e.fallback(ctx, object, rule); fallback != nil {
		prepared.program = fallback
	}
	return prepared
}

// unloaded returns a rule that withholds every request of its stage, for a PodTransitionRule that is not loaded.
func unloaded(object types.NamespacedName, entry appsv1alpha1.TransitionRule, generation int64, why error) *preparedRule {
	return &preparedRule{
		spec: entry, stage: entry.Stage,
		id: rule.RuleID{Ruleset: object, Rule: entry.Name}, ruleState: ruleState{counters: newCounters(entry, generation)}, err: why,
	}
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

// stageOf returns the stage of a rule that may be invalid; empty for a rule without a stage.
func stageOf(rule appsv1alpha1.TransitionRule) appsv1alpha1.TransitionStage {
	switch stage := normalized(rule).Stage; stage {
	case appsv1alpha1.StagePreCheck, appsv1alpha1.StagePostCheck:
		return stage
	default:
		return ""
	}
}

// normalized returns a rule in its canonical spelling. spec.Rule returns its errors.
func normalized(rule appsv1alpha1.TransitionRule) *appsv1alpha1.TransitionRule {
	entry := rule.DeepCopy()
	_, _ = spec.Normalize(entry, nil)
	return entry
}

// needsPods reports whether a rule of a PodTransitionRule, as it is prepared now, reads other pods.
func (s *State) needsPods(object *appsv1alpha1.PodTransitionRule) bool {
	known, ok := s.rulesets[object.Name]
	return ok && slices.ContainsFunc(known.prepared.rules, func(rule *preparedRule) bool { return rule.needs().Pods })
}

// errorsOf joins the compile errors of a PodTransitionRule.
func errorsOf(rules []*preparedRule) error {
	var all []error
	for _, rule := range rules {
		if rule.err != nil && !rule.unprepared() {
			all = append(all, rule.err)
		}
	}
	return errors.Join(all...)
}
