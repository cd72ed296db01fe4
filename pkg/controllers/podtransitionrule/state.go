package podtransitionrule

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/fairshare"
	"github.com/podops-dev/podops/pkg/rule"
	"github.com/podops-dev/podops/pkg/webhooktask/dispatch"
)

// state is all that a Reconciler keeps from one round to the next, by namespace, and forget is the only
// way in which it is dropped. It is lost with the process: the status of the PodTransitionRules has what
// must not be lost.
type state struct {
	// calls are the calls of webhook rules that are in flight. Results arrive outside of rounds.
	calls *dispatch.InFlight

	// remembered has the recollections of the rules, bounded in bytes over all namespaces.
	remembered *recollections

	mu         sync.Mutex
	namespaces map[string]*namespaceState
}

// namespaceState is the state of one namespace. The rounds of a namespace follow each other, and each
// uses it in one goroutine, so that it needs no lock.
type namespaceState struct {
	// rulesets are the PodTransitionRules of the namespace, by name.
	rulesets map[string]*rulesetState

	// lastBackground is the PodTransitionRule whose status was the last background write. The next
	// background write is of the one that follows it.
	lastBackground string

	// explanations are the annotations that say why pods wait.
	explanations explanations

	// missed are the pods that had no turn in the last rounds (permit.Plan.Missed). The map is
	// replaced, never modified.
	missed map[types.UID]int
}

// rulesetState is the state of one PodTransitionRule.
type rulesetState struct {
	// prepared are its rules, ready to be evaluated.
	prepared preparedRuleset

	// pendingView is set while the record of permits requires a later view of the pods.
	pendingView pendingView

	// missing are the pods that its workloads miss, by UID of the workload.
	missing map[types.UID]missing

	// lastStatus is the time of the last write of the status, lastBatch that of the last one that
	// added reservations.
	lastStatus, lastBatch time.Time
}

// pendingView is a record of permits that requires a view of the pods that is not there yet.
type pendingView struct {
	record *appsv1alpha1.PermitRecord
	since  time.Time
}

// newState returns a state that remembers at most so many bytes of what rules returned.
func newState(memory int64, calls *dispatch.InFlight) *state {
	return &state{
		calls: calls, remembered: fairshare.NewCache[*preparedRule, *recollection](memory),
		namespaces: map[string]*namespaceState{},
	}
}

// of returns the state of a namespace, empty at first.
func (s *state) of(namespace string) *namespaceState {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.namespaces[namespace]
	if !ok {
		known = &namespaceState{rulesets: map[string]*rulesetState{}}
		s.namespaces[namespace] = known
	}
	return known
}

// of returns the state of a PodTransitionRule, empty at first.
func (n *namespaceState) of(ruleset string) *rulesetState {
	known, ok := n.rulesets[ruleset]
	if !ok {
		known = &rulesetState{}
		n.rulesets[ruleset] = known
	}
	return known
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
	for name, ruleset := range known.rulesets {
		if present(name) {
			continue
		}
		s.forgetRules(ruleset.prepared.rules, nil)
		delete(known.rulesets, name)
		rulesets = append(rulesets, types.NamespacedName{Namespace: namespace, Name: name})
	}
	if len(known.rulesets) == 0 {
		delete(s.namespaces, namespace)
	}
	return rulesets, rules
}

// forgetRules drops the recollections of rules that are not among the kept ones.
func (s *state) forgetRules(gone, kept []*preparedRule) {
	present := make(map[*preparedRule]bool, len(kept))
	for _, rule := range kept {
		present[rule] = true
	}
	for _, rule := range gone {
		if !present[rule] {
			s.remembered.Remove(rule)
		}
	}
}
