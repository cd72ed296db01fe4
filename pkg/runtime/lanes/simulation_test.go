package lanes_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/podops-dev/podops/pkg/runtime/lanes"
)

// simulation is a controller on two cores, a millisecond at a time: workers take namespaces from a
// queue, and their rounds take turns at two evaluation slots, of which rounds of the slow lane
// have one.
type simulation struct {
	t     *testing.T
	lanes *lanes.Lanes
	now   time.Time

	queue  []string
	queued map[string]bool
	rounds []*round

	// slots hold the round that evaluates; the slow lane may use only the first.
	slots [2]*round

	// turns count the rounds in the slow lane.
	turns map[string]int

	// queuedAt is when the quiet namespace was queued; latencies are how long it took.
	queuedAt  time.Time
	latencies []time.Duration
}

type round struct {
	namespace string
	lane      lanes.Lane
	began     time.Time

	// left is the remaining time of the evaluation; evaluations are the evaluations that follow.
	left        time.Duration
	evaluations int
}

const (
	workers     = 10
	quiet       = "quiet"
	budget      = 2 * time.Second
	slowModule  = 90 * time.Millisecond
	quickModule = time.Millisecond
	tick        = time.Millisecond
)

func (s *simulation) add(namespace string) {
	if !s.queued[namespace] {
		s.queue, s.queued[namespace] = append(s.queue, namespace), true
	}
}

func (s *simulation) step() {
	for len(s.rounds) < workers && len(s.queue) > 0 {
		namespace := s.queue[0]
		s.queue = s.queue[1:]
		delete(s.queued, namespace)
		if lane, ok := s.lanes.Enter(namespace, s.now); ok {
			s.begin(namespace, lane)
		}
	}
	for _, r := range s.rounds {
		s.takeSlot(r)
	}
	s.now = s.now.Add(tick)
	for i, r := range s.slots {
		if r == nil {
			continue
		}
		if r.left -= tick; r.left <= 0 {
			s.slots[i] = nil
			s.evaluated(r)
		}
	}
}

func (s *simulation) begin(namespace string, lane lanes.Lane) {
	r := &round{namespace: namespace, lane: lane, began: s.now, left: slowModule, evaluations: 1 << 30}
	if namespace == quiet {
		r.left, r.evaluations = quickModule, 2
	}
	if lane == lanes.Slow {
		s.turns[namespace]++
	}
	s.rounds = append(s.rounds, r)
}

// takeSlot gives a round a slot if it has none and one is free for its lane.
func (s *simulation) takeSlot(r *round) {
	if slices.Contains(s.slots[:], r) {
		return
	}
	switch {
	case r.lane == lanes.Slow && s.slots[0] == nil:
		s.slots[0] = r
	case r.lane == lanes.Fast && s.slots[1] == nil:
		s.slots[1] = r
	}
}

func (s *simulation) evaluated(r *round) {
	cost := slowModule
	if r.namespace == quiet {
		cost = quickModule
	}
	lane, ok := s.lanes.GoOn(r.namespace, cost, s.now)
	if lane == lanes.Slow && r.lane == lanes.Fast {
		s.turns[r.namespace]++
	}
	r.lane, r.left, r.evaluations = lane, cost, r.evaluations-1
	s.rounds = slices.DeleteFunc(s.rounds, func(other *round) bool { return other == r })
	if ok && r.evaluations > 0 && s.now.Sub(r.began) < budget {
		s.rounds = append(s.rounds, r) // the other rounds wait for the slot already
		return
	}
	for _, next := range s.lanes.Leave(r.namespace, 0, s.now) {
		s.add(next)
	}
	if r.namespace == quiet {
		s.latencies = append(s.latencies, s.now.Sub(s.queuedAt))
		s.queuedAt = time.Time{}
		return
	}
	s.add(r.namespace) // a slow namespace always has more to evaluate
}

// TestAQuietNamespaceAmongSlowOnes shows that the rounds of a quiet namespace are not delayed by
// many namespaces whose modules use all their CPU time, and that all of these have turns.
func TestAQuietNamespaceAmongSlowOnes(t *testing.T) {
	for _, slow := range []int{0, 1, 12, 100} {
		t.Run(fmt.Sprint(slow), func(t *testing.T) {
			s := &simulation{t: t, lanes: lanes.New(lanes.Options{}), now: epoch, queued: map[string]bool{}, turns: map[string]int{}}
			for i := range slow {
				s.add(fmt.Sprint("slow-", i))
			}
			// The first evaluations of each slow namespace run before it is known to be slow.
			unknown := 2*time.Duration(slow)*slowModule + time.Second
			for s.now.Sub(epoch) < unknown+20*time.Minute {
				if s.now.Sub(epoch) > unknown && s.queuedAt.IsZero() && s.now.UnixMilli()%500 == 0 {
					s.queuedAt = s.now
					s.add(quiet)
				}
				s.step()
			}
			slices.Sort(s.latencies)
			p99 := s.latencies[len(s.latencies)*99/100]
			t.Logf("%d rounds, p50 %s, p99 %s, max %s", len(s.latencies), s.latencies[len(s.latencies)/2], p99, s.latencies[len(s.latencies)-1])
			if p99 > 3*2*quickModule {
				t.Errorf("p99 of the rounds of the quiet namespace is %s, undisturbed they take %s", p99, 2*quickModule)
			}
			if s.turns[quiet] > 0 {
				t.Errorf("the quiet namespace was in the slow lane %d times", s.turns[quiet])
			}
			s.fairTurns(slow)
		})
	}
}

func (s *simulation) fairTurns(slow int) {
	fewest, most := 1<<30, 0
	for i := range slow {
		turns := s.turns[fmt.Sprint("slow-", i)]
		fewest, most = min(fewest, turns), max(most, turns)
	}
	if slow > 0 && (fewest == 0 || most > 2*fewest) {
		s.t.Errorf("slow namespaces had from %d to %d turns", fewest, most)
	}
}
