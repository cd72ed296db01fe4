package podtransitionrule

import (
	"context"
	"errors"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/policy"
	"github.com/podops-dev/podops/pkg/policy/compile"
	"github.com/podops-dev/podops/pkg/policy/engine"
)

// program is a rule that can be asked. It is an *engine.Program.
type program interface {
	Evaluate(
		ctx context.Context, stage appsv1alpha1.TransitionStage, around policy.Surroundings, requests []policy.Request,
	) (policy.Result, error)
	VerdictsNeedCounts() bool
}

// preparedRule is one rule of a PodTransitionRule that is in force.
type preparedRule struct {
	spec appsv1alpha1.TransitionRule
	id   policy.RuleID
	kind policy.Kind

	// stage in which it is asked; empty for both, when a rule without a program does
	// not say which.
	stage appsv1alpha1.TransitionStage

	program program

	// err is why there is no program. Every request that the rule could apply to is
	// withheld.
	err error

	memo *memo

	// never is what was found out last. Rounds of a namespace follow each other, so
	// nothing guards it.
	never neverPasses
}

// neverPasses is whether an availability rule has room when every pod is available.
type neverPasses struct {
	counts policy.Counts
	passes bool
	known  bool
}

// enforced: the rule holds pods back. One that only warns, or only tries, does not even
// when it is broken.
func (p *preparedRule) enforced() bool {
	return p.spec.Enforcement != appsv1alpha1.EnforcementWarn && p.spec.Enforcement != appsv1alpha1.EnforcementDryRun
}

// budget: the rule bounds availability, so permits of its pods are reserved.
func (p *preparedRule) budget() bool {
	return p.kind == policy.KindAvailablePolicy && p.stage == appsv1alpha1.StagePreCheck && p.enforced()
}

// programs keeps the prepared rules of each PodTransitionRule, by generation.
type programs struct {
	engine *engine.Engine

	mu      sync.Mutex
	objects map[types.NamespacedName]preparedObject
}

type preparedObject struct {
	uid        types.UID
	generation int64
	rules      []*preparedRule
}

func newPrograms(e *engine.Engine) *programs {
	return &programs{engine: e, objects: map[types.NamespacedName]preparedObject{}}
}

// of returns the prepared rules of an object: disabled ones left out, those that take
// slots last. An edit compiles only the rules that it changed: the engine remembers
// programs by their source.
func (p *programs) of(ctx context.Context, object *appsv1alpha1.PodTransitionRule) []*preparedRule {
	key := types.NamespacedName{Namespace: object.Namespace, Name: object.Name}
	p.mu.Lock()
	known, ok := p.objects[key]
	p.mu.Unlock()
	if ok && known.uid == object.UID && known.generation == object.Generation {
		return known.rules
	}
	var first, last []*preparedRule
	for _, rule := range object.Spec.Rules {
		if rule.Disabled {
			continue
		}
		prepared := p.prepare(ctx, key, rule)
		if prepared.kind == policy.KindAvailablePolicy {
			last = append(last, prepared)
		} else {
			first = append(first, prepared)
		}
	}
	rules := slices.Concat(first, last)
	if ctx.Err() == nil {
		p.mu.Lock()
		p.objects[key] = preparedObject{uid: object.UID, generation: object.Generation, rules: rules}
		p.mu.Unlock()
	}
	return rules
}

func (p *programs) prepare(ctx context.Context, object types.NamespacedName, rule appsv1alpha1.TransitionRule) *preparedRule {
	prepared := &preparedRule{
		spec: rule, stage: stageOf(rule), memo: newMemo(),
		id: policy.RuleID{Object: object, Rule: rule.Name},
	}
	module, err := compile.Rule(object, rule, nil)
	if err != nil {
		prepared.err = err
		return prepared
	}
	prepared.kind, prepared.stage = module.Kind, module.Stage
	prepared.program, prepared.err = p.engine.Prepare(ctx, module)
	return prepared
}

// stageOf is the stage of a rule that may be invalid; empty when it has none.
func stageOf(rule appsv1alpha1.TransitionRule) appsv1alpha1.TransitionStage {
	folded := rule.DeepCopy()
	_, _ = compile.Fold(folded, nil) // what is wrong with it, compile.Rule says
	switch folded.Stage {
	case appsv1alpha1.StagePreCheck, appsv1alpha1.StagePostCheck:
		return folded.Stage
	default:
		return ""
	}
}

// forget drops what is prepared for objects that are not among the present ones of
// their namespace.
func (p *programs) forget(namespace string, present map[string]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key := range p.objects {
		if key.Namespace == namespace && !present[key.Name] {
			delete(p.objects, key)
		}
	}
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
