// Package memo remembers what rules have answered, so that a round asks them only about
// the requests whose facts have changed.
package memo

import (
	"context"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/policy"
)

// Program is a rule that can be asked. It is an *engine.Program.
type Program interface {
	// Evaluate answers requests that all wait in one stage.
	Evaluate(
		ctx context.Context, stage appsv1alpha1.TransitionStage, around policy.Surroundings, requests []policy.Request,
	) (policy.Result, error)

	// NeedsCounts says whether the result depends on the counts, be it the room alone.
	NeedsCounts() bool
}

// Scope says what a verdict depends on besides the pod and the operation. The zero value
// is nothing else: such verdicts last as long as the pod stays as it is.
type Scope struct {
	Counts    bool
	Namespace bool

	// Fleeting: the verdict depends on the time, on other pods, or on permits. It is
	// never remembered.
	Fleeting bool
}

// Answer of a rule for a list of requests.
type Answer struct {
	// Verdicts are those of the requests, in their order. They are shared with later
	// answers and must not be modified.
	Verdicts []policy.Verdict

	// Room is that of policy.Result.
	Room *policy.Room
}

// Memo holds the verdicts of one rule for the requests that it was last asked about, and
// no others: what no longer waits is forgotten. It is safe for concurrent use.
type Memo struct {
	mu        sync.Mutex
	asked     []policy.Request
	verdicts  []policy.Verdict
	counts    policy.Counts
	namespace policy.Namespace

	// transient: some verdict is.
	transient bool

	room room
}

// room is what the program answered last. It depends on the counts and nothing else, so it
// is remembered apart from the verdicts.
type room struct {
	known  bool
	counts policy.Counts
	room   *policy.Room
}

// New returns an empty Memo.
func New() *Memo { return &Memo{} }

// Evaluate answers the requests, which all wait in stage and are not modified afterwards:
// from memory where nothing that scope names has changed, from the program for the rest.
// With all of them known, and the counts those of the last time if they matter, the program
// is not asked at all. An error answers none of them and leaves the memory as it was.
func (m *Memo) Evaluate(
	ctx context.Context, program Program, scope Scope,
	stage appsv1alpha1.TransitionStage, around policy.Surroundings, requests []policy.Request,
) (Answer, error) {
	if len(requests) == 0 {
		m.remember(nil, nil, around)
		return Answer{}, nil
	}
	verdicts, rest, last := m.recall(scope, around, requests)
	if len(rest) == 0 && !program.NeedsCounts() {
		return Answer{Verdicts: verdicts}, nil
	}
	if len(rest) == 0 && last.known && last.counts == around.Counts {
		return Answer{Verdicts: verdicts, Room: last.room}, nil
	}
	result, err := program.Evaluate(ctx, stage, around, pick(requests, rest))
	if err != nil {
		return Answer{}, err
	}
	m.keep(around.Counts, result.Room)
	if len(rest) > 0 {
		for _, i := range rest {
			verdicts[i] = result.Verdicts[requests[i].Key()] // a missing one withholds
		}
		m.remember(requests, verdicts, around)
	}
	return Answer{Verdicts: verdicts, Room: result.Room}, nil
}

// recall returns the verdicts of the requests, and the positions of those that have to be
// asked. With none to ask, the verdicts are those that are remembered themselves. The room
// may be that of other counts.
func (m *Memo) recall(scope Scope, around policy.Surroundings, requests []policy.Request) ([]policy.Verdict, []int, room) {
	m.mu.Lock()
	defer m.mu.Unlock()
	fresh := scope.Fleeting || scope.Counts && m.counts != around.Counts ||
		scope.Namespace && !sameNamespace(m.namespace, around.Namespace)
	if !fresh && !m.transient && sameList(m.asked, requests) {
		return m.verdicts, nil, m.room
	}
	verdicts := make([]policy.Verdict, len(requests))
	var rest []int
	find := m.finder()
	for i, request := range requests {
		at, ok := find(i, request)
		if fresh || !ok || isTransient(m.verdicts[at]) || !sameFacts(m.asked[at], request) {
			rest = append(rest, i)
			continue
		}
		verdicts[i] = m.verdicts[at]
	}
	if len(rest) == 0 {
		m.asked, m.verdicts, m.transient = requests, verdicts, false
	}
	return verdicts, rest, m.room
}

// keep remembers the room for some counts.
func (m *Memo) keep(counts policy.Counts, answered *policy.Room) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.room = room{known: true, counts: counts, room: answered}
}

// finder looks up requests in what is remembered. Lists are in the same order as a rule,
// so the place of one is that of the last one plus one; only then is a map made.
func (m *Memo) finder() func(int, policy.Request) (int, bool) {
	var index map[key]int
	shift := 0
	return func(i int, request policy.Request) (int, bool) {
		if at := i + shift; at >= 0 && at < len(m.asked) && sameRequest(&m.asked[at], &request) {
			return at, true
		}
		if index == nil {
			index = make(map[key]int, len(m.asked))
			for at, known := range m.asked {
				index[keyOf(known)] = at
			}
		}
		at, ok := index[keyOf(request)]
		if ok {
			shift = at - i
		}
		return at, ok
	}
}

func (m *Memo) remember(requests []policy.Request, verdicts []policy.Verdict, around policy.Surroundings) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked, m.verdicts = requests, verdicts
	m.transient = slices.ContainsFunc(verdicts, isTransient)
	m.counts, m.namespace = around.Counts, around.Namespace
}

// key identifies a request, as its Key does, without building a string.
type key struct {
	pod   types.UID
	stage appsv1alpha1.TransitionStage
	id    string
}

func keyOf(request policy.Request) key {
	return key{pod: request.Pod.UID, stage: request.Stage, id: request.ID}
}

// sameList looks at the requests only if they are not the very same list.
func sameList(a, b []policy.Request) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || slices.Equal(a, b))
}

// sameRequest compares keys. It does not look into a pod that is the same.
func sameRequest(a, b *policy.Request) bool {
	return a.ID == b.ID && a.Stage == b.Stage && (a.Pod == b.Pod || a.Pod.UID == b.Pod.UID)
}

// sameFacts: rules cannot tell the two apart.
func sameFacts(a, b policy.Request) bool {
	return a.Type == b.Type && a.Generation == b.Generation && a.Task == b.Task &&
		(a.Pod == b.Pod || a.Pod.Version == b.Pod.Version && b.Pod.Version != "")
}

func sameNamespace(a, b policy.Namespace) bool {
	return a.Name == b.Name && maps.Equal(a.Labels, b.Labels)
}

// isTransient: the rule could not be asked properly, or wants to be asked again. Another
// verdict may follow although nothing has changed.
func isTransient(verdict policy.Verdict) bool {
	switch verdict.Code {
	case policy.CodeEvaluationFailed, policy.CodeTimeout, policy.CodePolicyTooExpensive, policy.CodeNotReached:
		return true
	default:
		return verdict.RetryAfter > 0
	}
}

func pick(requests []policy.Request, positions []int) []policy.Request {
	if len(positions) == len(requests) {
		return requests
	}
	picked := make([]policy.Request, 0, len(positions))
	for _, i := range positions {
		picked = append(picked, requests[i])
	}
	return picked
}
