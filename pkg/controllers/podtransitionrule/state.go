package podtransitionrule

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/engine/evaluation"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask/dispatch"
)

// state is the state of a Reconciler between rounds, by namespace, and forget is the only way in which
// it is dropped. It ends with the process: state that must survive is in the status of the
// PodTransitionRules.
type state struct {
	// calls are the calls of webhook rules that are in flight. Results arrive outside of rounds.
	calls *dispatch.InFlight

	// memory bounds the bytes that the rules of all namespaces remember from one round to the next.
	memory int64

	mu         sync.Mutex
	namespaces map[string]*namespaceState

	// remembered is the number of these bytes.
	remembered int64
}

// namespaceState is the state of one namespace. The rounds of a namespace follow each other, and each
// uses it in one goroutine, so that it needs no lock.
type namespaceState struct {
	// evaluation is the state of the evaluation: the prepared rules, with their counters.
	evaluation *evaluation.State

	// remembered is the number of bytes that its rules remembered after its last round.
	remembered int64

	// rulesets are the PodTransitionRules of the namespace, by name.
	rulesets map[string]*rulesetState

	// records are the records of permits, by the names of their budgets (podindex.Snapshot.Records).
	records map[string]*recordState

	// lastBackground is the PodTransitionRule whose status was the last background write. The next
	// background write is for the PodTransitionRule that follows it.
	lastBackground string

	// explanations are the annotations that say why pods wait.
	explanations explanations

	// approved is the revision of each workload whose approval was recorded as an event.
	approved map[types.UID]string
}

// rulesetState is the state of one PodTransitionRule.
type rulesetState struct {
	// pace bounds how often the status is written.
	pace pace
}

// recordState is the state of one permit record.
type recordState struct {
	// pendingView is set while the record requires a later view of the pods.
	pendingView pendingView

	// batches bounds how often reservations are added.
	batches batches
}

// pendingView is a record of permits that requires a view of the pods that the watch has not
// delivered yet.
type pendingView struct {
	record *appsv1alpha1.PermitRecord
	since  time.Time
}

// newState returns an empty state.
func newState(memory int64, calls *dispatch.InFlight) *state {
	return &state{calls: calls, memory: memory, namespaces: map[string]*namespaceState{}}
}

// share returns how many bytes the rules of a namespace may remember: half of the bytes that the others leave. So there is
// always some left, and namespaces that need more than their share approach equal parts.
func (s *state) share(namespace string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := s.memory - s.remembered
	if known, ok := s.namespaces[namespace]; ok {
		left += known.remembered
	}
	return left / 2
}

// remember notes how many bytes the rules of a namespace remember after a round.
func (s *state) remember(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.namespaces[namespace]; ok {
		s.note(known, known.evaluation.Bytes())
	}
}

// note is remember for a caller that holds the lock.
func (s *state) note(known *namespaceState, bytes int64) {
	s.remembered += bytes - known.remembered
	known.remembered = bytes
}

// namespace returns the state of a namespace, empty at first.
func (s *state) namespace(namespace string) *namespaceState {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.namespaces[namespace]
	if !ok {
		known = &namespaceState{evaluation: evaluation.NewState(), rulesets: map[string]*rulesetState{}, records: map[string]*recordState{}}
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

// record returns the state of a record, empty at first.
func (n *namespaceState) record(name string) *recordState {
	known, ok := n.records[name]
	if !ok {
		known = &recordState{}
		n.records[name] = known
	}
	return known
}

// forget drops the state of the PodTransitionRules that are not present in a namespace, of the records that are not
// needed, and the calls of rules that are not called any more, and returns the PodTransitionRules and the rules. It drops
// the namespace when no PodTransitionRule and no record is left.
func (s *state) forget(
	namespace string, present func(ruleset string) bool, needed func(name string, record *recordState) bool, called func(rule.RuleID) bool,
) (rulesets []types.NamespacedName, rules []rule.RuleID) {
	rules = s.calls.Keep(namespace, called)
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.namespaces[namespace]
	if !ok {
		return nil, rules
	}
	for _, name := range known.evaluation.Forget(present) {
		rulesets = append(rulesets, types.NamespacedName{Namespace: namespace, Name: name})
	}
	maps.DeleteFunc(known.rulesets, func(name string, _ *rulesetState) bool { return !present(name) })
	maps.DeleteFunc(known.records, func(name string, record *recordState) bool { return !needed(name, record) })
	if len(known.rulesets) == 0 && len(known.records) == 0 && known.evaluation.IsEmpty() {
		s.note(known, 0)
		delete(s.namespaces, namespace)
	}
	return rulesets, rules
}
