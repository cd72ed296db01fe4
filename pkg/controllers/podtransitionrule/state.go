package podtransitionrule

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/evaluation"
	"github.com/podops-dev/podops/pkg/rule"
	"github.com/podops-dev/podops/pkg/webhooktask/dispatch"
)

// state is the state of a Reconciler between rounds, by namespace, and forget is the only way in which
// it is dropped. It ends with the process: state that must survive is in the status of the
// PodTransitionRules.
type state struct {
	// calls are the calls of webhook rules that are in flight. Results arrive outside of rounds.
	calls *dispatch.InFlight

	// evaluator has the recollections of the rules, bounded in bytes over all namespaces.
	evaluator *evaluation.Evaluator

	mu         sync.Mutex
	namespaces map[string]*namespaceState
}

// namespaceState is the state of one namespace. The rounds of a namespace follow each other, and each
// uses it in one goroutine, so that it needs no lock.
type namespaceState struct {
	// evaluation is the state of the evaluation: the prepared rules, with their counters.
	evaluation *evaluation.State

	// rulesets are the PodTransitionRules of the namespace, by name.
	rulesets map[string]*rulesetState

	// stamped are the pods to which a permit was written, with the resourceVersion before the write, until
	// the watch delivers a later resourceVersion. A write that has failed may have been stored all the same.
	stamped map[types.UID]string

	// lastBackground is the PodTransitionRule whose status was the last background write. The next
	// background write is for the PodTransitionRule that follows it.
	lastBackground string

	// explanations are the annotations that say why pods wait.
	explanations explanations
}

// rulesetState is the state of one PodTransitionRule.
type rulesetState struct {
	// pendingView is set while the record of permits requires a later view of the pods.
	pendingView pendingView

	// pace is the pace of the writes of the status. lastBatch is the time of the last write that
	// added reservations.
	pace      pace
	lastBatch time.Time
}

// pendingView is a record of permits that requires a view of the pods that the watch has not
// delivered yet.
type pendingView struct {
	record *appsv1alpha1.PermitRecord
	since  time.Time
}

// newState returns an empty state.
func newState(evaluator *evaluation.Evaluator, calls *dispatch.InFlight) *state {
	return &state{calls: calls, evaluator: evaluator, namespaces: map[string]*namespaceState{}}
}

// namespace returns the state of a namespace, empty at first.
func (s *state) namespace(namespace string) *namespaceState {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.namespaces[namespace]
	if !ok {
		known = &namespaceState{evaluation: evaluation.NewState(), rulesets: map[string]*rulesetState{}}
		s.namespaces[namespace] = known
	}
	return known
}

// ruleset returns the state of a PodTransitionRule, empty at first.
func (n *namespaceState) ruleset(ruleset string) *rulesetState {
	known, ok := n.rulesets[ruleset]
	if !ok {
		known = &rulesetState{}
		n.rulesets[ruleset] = known
	}
	return known
}

// stamp records that a permit is about to be written to a pod at this resourceVersion.
func (n *namespaceState) stamp(uid types.UID, resourceVersion string) {
	if n.stamped == nil {
		n.stamped = map[types.UID]string{}
	}
	n.stamped[uid] = resourceVersion
}

// stampedIn returns the pods that are in a view as they were before their permit was written, and forgets the
// others.
func (n *namespaceState) stampedIn(at func(types.UID) string) map[types.UID]bool {
	maps.DeleteFunc(n.stamped, func(uid types.UID, resourceVersion string) bool { return at(uid) != resourceVersion })
	stamped := make(map[types.UID]bool, len(n.stamped))
	for uid := range n.stamped {
		stamped[uid] = true
	}
	return stamped
}

// forget drops the state of the PodTransitionRules that are not present in a namespace, and the calls of
// rules that are not called any more, and returns both. It drops the namespace when no PodTransitionRule
// is left.
func (s *state) forget(
	namespace string, present func(ruleset string) bool, called func(rule.RuleID) bool,
) (rulesets []types.NamespacedName, rules []rule.RuleID) {
	rules = s.calls.Keep(namespace, called)
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.namespaces[namespace]
	if !ok {
		return nil, rules
	}
	for _, name := range s.evaluator.Forget(known.evaluation, present) {
		rulesets = append(rulesets, types.NamespacedName{Namespace: namespace, Name: name})
	}
	maps.DeleteFunc(known.rulesets, func(name string, _ *rulesetState) bool { return !present(name) })
	if len(known.rulesets) == 0 && len(known.stamped) == 0 && known.evaluation.IsEmpty() {
		delete(s.namespaces, namespace)
	}
	return rulesets, rules
}
