package podtransitionrule

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/policy"
	"github.com/podops-dev/podops/pkg/policy/compile"
	"github.com/podops-dev/podops/pkg/policy/engine"
	"github.com/podops-dev/podops/pkg/policy/memo"
)

// program is a rule that can be asked. It is an *engine.Program.
type program interface {
	memo.Program
	VerdictsNeedCounts() bool
	Needs() engine.Needs
	Source() string
}

// preparedRule is one rule of a PodTransitionRule that is in force. Rounds of a
// namespace follow each other, so nothing guards it.
type preparedRule struct {
	spec appsv1alpha1.TransitionRule
	id   policy.RuleID
	kind policy.Kind

	// webhook of the rule, in its canonical spelling; nil for other kinds.
	webhook *appsv1alpha1.TransitionRuleWebhook

	// policy is the version of the PodTransitionPolicy that it was compiled with.
	policy string

	// stage in which it is asked; empty for both, when a rule that does not compile
	// does not say which.
	stage appsv1alpha1.TransitionStage

	// program that is asked; nil: every request that the rule could apply to is
	// withheld.
	program program

	// err is why the program is a stand-in, or is missing.
	err error

	memo  *memo.Memo
	never neverPasses

	counters    *counters
	strikes     strikes
	quarantined *appsv1alpha1.Quarantine
	nextChecks  nextChecks
	wording     *wording
	refusals    refusals
}

// neverPasses is whether an availability rule has room when every pod is available, as
// it was found out last.
type neverPasses struct {
	counts policy.Counts
	passes bool
	known  bool
}

// enforced: the rule holds pods back. One that only warns, or only tries, does not even
// when it is broken.
func (p *preparedRule) enforced() bool {
	return enforcementOf(p.spec) == appsv1alpha1.EnforcementEnforce
}

// budget: the rule bounds availability, so permits of its pods are reserved.
func (p *preparedRule) budget() bool {
	return p.kind == policy.KindAvailablePolicy && p.stage == appsv1alpha1.StagePreCheck && p.enforced()
}

// needs are the surroundings that the rule reads.
func (p *preparedRule) needs() engine.Needs {
	if p.program == nil {
		return engine.Needs{}
	}
	return p.program.Needs()
}

// judges: what the rule says of a pod depends on what other pods were permitted.
func (p *preparedRule) judges() bool {
	return p.needs().Pods || p.needs().Permits || p.kind == policy.KindRego && p.needs().Counts
}

// scope is what a verdict of the rule depends on besides the pod.
func (p *preparedRule) scope() memo.Scope {
	needs := p.needs()
	return memo.Scope{
		Counts:    p.program.VerdictsNeedCounts() || p.kind == policy.KindRego && needs.Counts,
		Namespace: needs.Namespace,
		Fleeting:  needs.Now || needs.Pods || needs.Permits,
	}
}

// programs keeps the prepared rules of each PodTransitionRule, by generation.
type programs struct {
	engine *engine.Engine

	// prepared is told each module that a rule is asked with from now on; nil: nobody.
	prepared func(compile.Module)

	mu      sync.Mutex
	objects map[types.NamespacedName]preparedObject
}

type preparedObject struct {
	uid        types.UID
	generation int64
	policies   string
	rules      []*preparedRule
}

func newPrograms(e *engine.Engine, prepared func(compile.Module)) *programs {
	return &programs{engine: e, prepared: prepared, objects: map[types.NamespacedName]preparedObject{}}
}

// of returns the prepared rules of an object: disabled ones left out, cheap ones first
// and those that take slots last. An edit prepares only the rules that it changed, or
// whose PodTransitionPolicy changed.
func (p *programs) of(ctx context.Context, object *appsv1alpha1.PodTransitionRule, shared policies) []*preparedRule {
	key := keyOf(object)
	versions := versionsOf(object, shared)
	p.mu.Lock()
	known, ok := p.objects[key]
	p.mu.Unlock()
	if ok && known.uid == object.UID && known.generation == object.Generation && known.policies == versions {
		return known.rules
	}
	var rules []*preparedRule
	for _, rule := range object.Spec.Rules {
		if rule.Disabled {
			continue
		}
		prepared := known.unchanged(object.UID, rule, shared.versionOf(rule))
		if prepared == nil {
			prepared = p.prepare(ctx, key, rule, shared)
			prepared.counters = newCounters(rule, object.Generation)
			if !ok && object.Status.ObservedGeneration == object.Generation {
				prepared.resume(object.Status.Rules)
			}
		}
		rules = append(rules, prepared)
	}
	slices.SortStableFunc(rules, func(a, b *preparedRule) int { return costOf(a.kind) - costOf(b.kind) })
	if ctx.Err() == nil {
		p.mu.Lock()
		p.objects[key] = preparedObject{uid: object.UID, generation: object.Generation, policies: versions, rules: rules}
		p.mu.Unlock()
	}
	return rules
}

// versionsOf are the PodTransitionPolicies that an object is compiled with.
func versionsOf(object *appsv1alpha1.PodTransitionRule, shared policies) string {
	versions := make([]string, 0, len(object.Spec.Rules))
	for _, rule := range object.Spec.Rules {
		versions = append(versions, shared.versionOf(rule))
	}
	return strings.Join(versions, ",")
}

// unchanged returns the prepared rule that an edit left as it was, nil when there is
// none. What it has counted and learned stays.
func (o preparedObject) unchanged(uid types.UID, rule appsv1alpha1.TransitionRule, version string) *preparedRule {
	if o.uid != uid {
		return nil
	}
	for _, prepared := range o.rules {
		if prepared.policy == version && apiequality.Semantic.DeepEqual(prepared.spec, rule) {
			return prepared
		}
	}
	return nil
}

// costOf orders the kinds of rules: the cheap ones are asked first.
func costOf(kind policy.Kind) int {
	return slices.Index([]policy.Kind{policy.KindLabelCheck, policy.KindRego, policy.KindWebhook, policy.KindAvailablePolicy}, kind)
}

func (p *programs) prepare(
	ctx context.Context, object types.NamespacedName, rule appsv1alpha1.TransitionRule, shared policies,
) *preparedRule {
	prepared := &preparedRule{
		spec: rule, stage: stageOf(rule), memo: memo.New(), nextChecks: nextChecks{}, wording: newWording(),
		policy: shared.versionOf(rule), id: policy.RuleID{Object: object, Rule: rule.Name},
	}
	if rule.Rego != nil {
		prepared.kind = policy.KindRego
	}
	prepared.webhook = foldedOf(rule).Webhook
	module, err := p.moduleOf(ctx, object, rule, shared)
	if err == nil {
		prepared.kind, prepared.stage = module.Kind, module.Stage
		var ready *engine.Program
		if ready, err = p.engine.Prepare(ctx, module); err == nil {
			prepared.program = ready
			if p.prepared != nil {
				p.prepared(module)
			}
			return prepared
		}
	}
	prepared.err = err
	if standIn := p.standIn(ctx, object, rule); standIn != nil {
		prepared.program = standIn
	}
	return prepared
}

// resume takes in what a status says of the rule: after a restart it goes on counting,
// and a quarantine goes on.
func (p *preparedRule) resume(statuses []appsv1alpha1.RuleStatus) {
	for _, status := range statuses {
		if status.Name != p.spec.Name {
			continue
		}
		p.counters.resume(status)
		if p.err == nil && p.program != nil && isUnderQuarantine(&status, p.program.Source()) {
			p.quarantined = status.Quarantined.DeepCopy()
		}
	}
}

// stageOf is the stage of a rule that may be invalid; empty when it has none.
func stageOf(rule appsv1alpha1.TransitionRule) appsv1alpha1.TransitionStage {
	switch stage := foldedOf(rule).Stage; stage {
	case appsv1alpha1.StagePreCheck, appsv1alpha1.StagePostCheck:
		return stage
	default:
		return ""
	}
}

// foldedOf is a rule in its canonical spelling. What is wrong with it, compile.Rule says.
func foldedOf(rule appsv1alpha1.TransitionRule) *appsv1alpha1.TransitionRule {
	folded := rule.DeepCopy()
	_, _ = compile.Fold(folded, nil)
	return folded
}

// needsPods says whether a rule of an object, as it is prepared now, reads other pods.
func (p *programs) needsPods(object *appsv1alpha1.PodTransitionRule) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.objects[keyOf(object)].rules, func(rule *preparedRule) bool { return rule.needs().Pods })
}

// forget drops what is prepared for objects that are not among the present ones of
// their namespace, and returns what they were.
func (p *programs) forget(namespace string, present map[string]bool) []forgotten {
	p.mu.Lock()
	defer p.mu.Unlock()
	var gone []forgotten
	for key, object := range p.objects {
		if key.Namespace != namespace || present[key.Name] {
			continue
		}
		delete(p.objects, key)
		was := forgotten{object: key}
		for _, rule := range object.rules {
			if rule.spec.Webhook != nil {
				was.webhooks = append(was.webhooks, rule.id)
			}
		}
		gone = append(gone, was)
	}
	return gone
}

// forgotten is a PodTransitionRule that is gone, and its webhook rules.
type forgotten struct {
	object   types.NamespacedName
	webhooks []policy.RuleID
}

// errorsOf joins the compile errors of an object.
func errorsOf(rules []*preparedRule) error {
	var all []error
	for _, rule := range rules {
		if rule.err != nil {
			all = append(all, rule.err)
		}
	}
	return errors.Join(all...)
}
