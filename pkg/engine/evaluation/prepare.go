package evaluation

import (
	"context"
	"errors"
	"slices"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/objectbounds"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/rule/imports"
	"github.com/podops-dev/podops/pkg/runtime/backoff"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"k8s.io/apimachinery/pkg/types"
)

// Snapshot is the input of an evaluation: a namespace at one moment, and its rules, ready to be evaluated.
type Snapshot struct {
	podindex.Snapshot

	// Retry is the delay after which the counts change with time alone; 0 for never.
	Retry time.Duration

	// prepared are the rules by PodTransitionRule.
	prepared map[string][]*preparedRule
}

// Prepare returns a snapshot with the rules of a namespace compiled. take takes a snapshot of the pod index,
// with all pods for the PodTransitionRules for which its argument returns true because they read pods. It is
// called again if a rule turns out to read them.
func (e *Evaluator) Prepare(
	ctx context.Context, t *Turn, state *State, take func(needsPods func(*appsv1alpha1.PodTransitionRule) bool) podindex.Snapshot,
) Snapshot {
	s := Snapshot{}
	for {
		s.Snapshot, s.prepared = take(state.needsPods), map[string][]*preparedRule{}
		missing := false
		for _, view := range s.Rules {
			known := state.needsPods(view.Object)
			s.prepared[view.Object.Name] = e.prepareRules(ctx, t, state, view.Object, s.Policies)
			for _, prepared := range s.prepared[view.Object.Name] {
				prepared.lift(view.Object)
			}
			missing = missing || !known && state.needsPods(view.Object)
		}
		if !missing || ctx.Err() != nil {
			return s
		}
	}
}

// NeedsNodes reports whether the module of a rule reads input.node.
func (s Snapshot) NeedsNodes() bool {
	for _, rules := range s.prepared {
		if slices.ContainsFunc(rules, func(p *preparedRule) bool { return p.needs().Node }) {
			return true
		}
	}
	return false
}

// WithMissing returns the snapshot with the pods counted as desired that workloads miss, and with the delay after
// which a count changes.
func (s Snapshot) WithMissing(state *State, now time.Time) Snapshot {
	s.Rules, s.Retry = state.countMissing(s.Rules, now)
	if !s.Ripens.IsZero() {
		s.Retry = backoff.MinDelay(s.Retry, max(time.Millisecond, s.Ripens.Sub(now)))
	}
	return s
}

// prepareRules returns the prepared rules of a PodTransitionRule: without disabled rules, cheap rules first and
// rules that take slots last. An edit prepares only the rules that it changed, or whose PodTransitionPolicy
// changed. A rule whose module the round has no time to compile has no program; the next call compiles it.
func (e *Evaluator) prepareRules(
	ctx context.Context, t *Turn, state *State, object *appsv1alpha1.PodTransitionRule, shared imports.Policies,
) []*preparedRule {
	key, ruleset := types.NamespacedName{Namespace: object.Namespace, Name: object.Name}, state.ruleset(object.Name)
	versions, known := policyVersions(object, shared), ruleset.prepared
	if known.loaded && known.isMadeFrom(object, versions) && known.isComplete() {
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
		prepared := known.unchanged(object.UID, rule, policyVersion(shared, rule))
		if prepared == nil {
			prepared = e.prepareInTime(ctx, t, key, rule, shared)
			prepared.counters = newCounters(rule, object.Generation)
			if next.resumes {
				prepared.resume(object.Status.Rules)
			}
		}
		next.rules = append(next.rules, prepared)
	}
	slices.SortStableFunc(next.rules, func(a, b *preparedRule) int { return evaluationCost(a.kind) - evaluationCost(b.kind) })
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
	ctx context.Context, t *Turn, object types.NamespacedName, entry appsv1alpha1.TransitionRule, shared imports.Policies,
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
func (e *Evaluator) isCompiled(rule appsv1alpha1.TransitionRule, shared imports.Policies) bool {
	custom, err := customModule(rule, shared)
	return err != nil || e.engine.IsCompiled(custom.Source, custom.ParametersSchema)
}

func (e *Evaluator) prepare(
	ctx context.Context, object types.NamespacedName, rule appsv1alpha1.TransitionRule, shared imports.Policies,
) *preparedRule {
	prepared := newPrepared(object, rule, shared)
	module, err := NewModule(ctx, e.engine, object, rule, shared)
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
	prepared.program = fallback(ctx, e.engine, object, rule)
	return prepared
}

// newEnvironment returns the rule environment for a PodTransitionRule: the facts beyond the requested
// pod.
func newEnvironment(snapshot Snapshot, view podindex.RuleView, now time.Time) rule.Environment {
	env := rule.Environment{
		Now: now, Namespace: rule.Namespace{Name: snapshot.Namespace, Labels: snapshot.NamespaceLabels},
		Counts: view.Counts, Pods: view.Pods, Permits: view.Permits, Workloads: snapshot.Workloads, Nodes: snapshot.Nodes,
	}
	if len(view.Live) > 0 {
		env.Committed = map[types.UID]bool{}
		for uid := range view.Live {
			env.Committed[uid] = true
		}
	}
	return env
}
