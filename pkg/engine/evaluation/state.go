package evaluation

import (
	"slices"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/pkg/core/rule"
)

// State is the evaluation state of one namespace between rounds. The rounds of a namespace follow
// each other, and each uses its state in one goroutine.
type State struct {
	// rulesets are the PodTransitionRules of the namespace, by name.
	rulesets map[string]*rulesetState

	// missed are the pods that had no turn in the last rounds (permit.Plan.Missed). The map is replaced,
	// never modified.
	missed map[types.UID]int

	// refused are the pods whose clients were answered that rules withhold them, with the time of the request. The map is replaced, never
	// modified.
	refused map[types.UID]time.Time

	// held is the time since which deferred requests were observed, by request key, while holds are
	// bounded.
	held map[string]time.Time

	// uncontrolled are the pods without the control label of PodDisruptionBudgets, by name.
	uncontrolled map[string]Uncontrolled

	// remembered is the size of all recollections, in bytes.
	remembered int64
}

// rulesetState is the state of one PodTransitionRule.
type rulesetState struct {
	// prepared are its rules, ready to be evaluated.
	prepared preparedRuleset

	// missing are the pods that its workloads miss, by UID of the workload.
	missing map[types.UID]missing
}

// missing is the number of pods that a workload misses, and the time since which it misses that
// number.
type missing struct {
	pods  int
	since time.Time
}

// SettledFor is the time for which the status of a PodDisruptionBudget must count healthy pods that are not
// controlled before permits rely on them. Until then the status may be older than the pods that this process
// has seen, and the difference may be pods that have become unready since. The disruption controller usually
// follows within a second.
const SettledFor = time.Minute

// Uncontrolled is how many healthy pods without the control label a PodDisruptionBudget counts: at least
// Settled, and at least rising since a time.
type Uncontrolled struct {
	Settled int
	rising  int
	since   time.Time
}

// After returns the number after another look: it falls at once, and rises to the least of the numbers that
// were seen for SettledFor.
func (u Uncontrolled) After(seen int, now time.Time) Uncontrolled {
	switch {
	case seen <= u.Settled:
		return Uncontrolled{Settled: seen}
	case u.rising <= u.Settled:
		return Uncontrolled{Settled: u.Settled, rising: seen, since: now}
	}
	u.rising = min(u.rising, seen)
	if now.Sub(u.since) < SettledFor {
		return u
	}
	return Uncontrolled{Settled: u.rising}
}

// NewState returns an empty State.
func NewState() *State { return &State{rulesets: map[string]*rulesetState{}} }

// ruleset returns the state of a PodTransitionRule, empty at first.
func (s *State) ruleset(ruleset string) *rulesetState {
	known, ok := s.rulesets[ruleset]
	if !ok {
		known = &rulesetState{}
		s.rulesets[ruleset] = known
	}
	return known
}

// observeRefused updates the pods whose clients do not wait for the answer: they have had it.
func (s *State) observeRefused(waiting []rule.Request) {
	refused := map[types.UID]time.Time{}
	for _, request := range waiting {
		if !request.Requested.IsZero() && (request.Refused || s.isRefused(request)) {
			refused[request.Pod.UID] = request.Requested
		}
	}
	s.refused = refused
}

// isRefused reports whether the client of a request has been answered since its last request.
func (s *State) isRefused(request rule.Request) bool {
	at, refused := s.refused[request.Pod.UID]
	return refused && at.Equal(request.Requested)
}

// Forget drops the state of the PodTransitionRules that are not present, and returns their names.
func (s *State) Forget(present func(ruleset string) bool) (gone []string) {
	for name, ruleset := range s.rulesets {
		if present(name) {
			continue
		}
		s.forgetRules(ruleset.prepared.rules, nil)
		delete(s.rulesets, name)
		gone = append(gone, name)
	}
	return gone
}

// IsEmpty reports whether a State has no PodTransitionRule, no PodDisruptionBudget and no bounded hold.
func (s *State) IsEmpty() bool {
	return len(s.rulesets) == 0 && len(s.uncontrolled) == 0 && len(s.held) == 0
}

// Bytes returns how many bytes the rules remember of their last rounds.
func (s *State) Bytes() int64 { return s.remembered }

// keep has a rule remember its round, if there is memory for it.
func (s *State) keep(rule *preparedRule, round *Recollection, most int64) {
	s.drop(rule)
	bytes := round.bytes()
	if len(round.requests) == 0 || s.remembered+bytes > most {
		return
	}
	round.charged, rule.remembered = bytes, round
	s.remembered += bytes
}

func (s *State) drop(rule *preparedRule) {
	if rule.remembered != nil {
		s.remembered -= rule.remembered.charged
		rule.remembered = nil
	}
}

// forgetRules drops what the rules remember that are in gone and not in kept.
func (s *State) forgetRules(gone, kept []*preparedRule) {
	for _, rule := range gone {
		if !slices.Contains(kept, rule) {
			s.drop(rule)
		}
	}
}

// needsPods reports whether a rule of a PodTransitionRule, as it is prepared now, reads other pods.
func (s *State) needsPods(object *appsv1alpha1.PodTransitionRule) bool {
	known, ok := s.rulesets[object.Name]
	return ok && slices.ContainsFunc(known.prepared.rules, func(rule *preparedRule) bool { return rule.needs().Pods })
}
