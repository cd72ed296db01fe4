// Package memo caches the verdicts of rules, so that a round evaluates only the requests whose
// facts have changed.
package memo

import (
	"context"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/rule"
)

// Program is a rule that can be evaluated. It is an *opa.Program.
type Program interface {
	// Evaluate evaluates requests that all wait in one stage.
	Evaluate(
		ctx context.Context, stage appsv1alpha1.TransitionStage, env rule.Environment, requests []rule.Request,
	) (rule.Result, error)

	// NeedsCounts reports whether the result, at least its capacity, depends on the counts.
	NeedsCounts() bool
}

// Scope lists the inputs of a verdict besides the pod and the operation. A verdict with the zero
// value is valid as long as the pod does not change.
type Scope struct {
	Counts    bool
	Namespace bool

	// Uncacheable means that the verdict depends on the time, on other pods, or on permits. It is
	// never cached.
	Uncacheable bool
}

// Answer is the result of a rule for a list of requests.
type Answer struct {
	// Verdicts are the verdicts of the requests, in their order. They are shared with later answers
	// and must not be modified.
	Verdicts []rule.Verdict

	// Capacity is the Capacity of the rule.Result.
	Capacity *rule.Capacity
}

// Memo caches the verdicts of one rule for the requests of its last evaluation: requests that no
// longer wait are dropped. It is safe for concurrent use.
type Memo struct {
	mu        sync.Mutex
	requests  []rule.Request
	verdicts  []rule.Verdict
	version   uint64 // of requests; 0 for none
	counts    rule.Counts
	namespace rule.Namespace

	// transient is set if a verdict is transient.
	transient bool

	// bytes is the memory of the requests and the verdicts.
	bytes int64

	capacity cachedCapacity
}

// Bytes of a request and of a verdict besides their strings, as a test measures them.
const (
	requestBytes = 280
	verdictBytes = 120
)

// cachedCapacity is the last capacity of the program. It depends on the counts and nothing else, so it is
// cached separately from the verdicts.
type cachedCapacity struct {
	known    bool
	counts   rule.Counts
	capacity *rule.Capacity
}

// New returns an empty Memo.
func New() *Memo { return &Memo{} }

// Bytes returns the approximate memory of the cached requests and verdicts. Pods are not counted,
// and lists that are shared with other rules are counted for each.
func (m *Memo) Bytes() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bytes
}

func bytesOf(requests []rule.Request, verdicts []rule.Verdict) int64 {
	bytes := len(requests)*requestBytes + len(verdicts)*verdictBytes
	for i := range requests {
		bytes += len(requests[i].ID) + len(requests[i].Type) + len(requests[i].Attempt) + len(requests[i].Task.Message)
	}
	for i := range verdicts {
		bytes += len(verdicts[i].Message) + len(verdicts[i].Details)
	}
	return int64(bytes)
}

// Evaluate returns the verdicts of the requests, which all wait in stage and are not modified
// afterwards: from the cache if nothing in scope has changed, from the program for the others. If
// all of them are cached, and the counts are unchanged or do not matter, the program is not
// evaluated. An error returns no verdicts and leaves the cache unchanged.
//
// version identifies the list of requests: two lists of the same version are equal, and their requests
// are not compared one by one. 0 is no version.
func (m *Memo) Evaluate(
	ctx context.Context, program Program, scope Scope,
	stage appsv1alpha1.TransitionStage, env rule.Environment, requests []rule.Request, version uint64,
) (Answer, error) {
	if len(requests) == 0 {
		m.Remember(nil, nil, env, 0)
		return Answer{}, nil
	}
	verdicts, rest, last := m.recall(scope, env, requests, version)
	if len(rest) == 0 && !program.NeedsCounts() {
		return Answer{Verdicts: verdicts}, nil
	}
	if len(rest) == 0 && last.known && last.counts == env.Counts {
		return Answer{Verdicts: verdicts, Capacity: last.capacity}, nil
	}
	result, err := program.Evaluate(ctx, stage, env, pick(requests, rest))
	if err != nil {
		return Answer{}, err
	}
	m.keep(env.Counts, result.Capacity)
	if len(rest) > 0 {
		for _, i := range rest {
			verdicts[i] = result.Verdicts[requests[i].Key()] // a missing one withholds
		}
		m.Remember(requests, verdicts, env, version)
	}
	return Answer{Verdicts: verdicts, Capacity: result.Capacity}, nil
}

// Recall returns the cached verdicts of the requests, and the positions of the requests to
// evaluate. Without such positions the verdicts are shared with later answers and must not be
// modified. It is for programs without a capacity; the caller evaluates them and calls Remember.
func (m *Memo) Recall(scope Scope, env rule.Environment, requests []rule.Request, version uint64) ([]rule.Verdict, []int) {
	verdicts, rest, _ := m.recall(scope, env, requests, version)
	return verdicts, rest
}

// recall returns the cached verdicts of the requests, and the positions of the requests to
// evaluate. Without such positions it returns the cached list itself. The capacity may have been
// computed from other counts.
func (m *Memo) recall(
	scope Scope, env rule.Environment, requests []rule.Request, version uint64,
) ([]rule.Verdict, []int, cachedCapacity) {
	m.mu.Lock()
	defer m.mu.Unlock()
	fresh := scope.Uncacheable || scope.Counts && m.counts != env.Counts ||
		scope.Namespace && !sameNamespace(m.namespace, env.Namespace)
	if !fresh && !m.transient && version != 0 && version == m.version {
		return m.verdicts, nil, m.capacity
	}
	verdicts := make([]rule.Verdict, len(requests))
	var rest []int
	find := m.finder()
	for i, request := range requests {
		at, ok := find(i, request)
		if fresh || !ok || isTransient(m.verdicts[at]) || !sameFacts(m.requests[at], request) {
			rest = append(rest, i)
			continue
		}
		verdicts[i] = m.verdicts[at]
	}
	if len(rest) == 0 {
		m.requests, m.verdicts, m.transient, m.version = requests, verdicts, false, version
		m.bytes = bytesOf(requests, verdicts)
	}
	return verdicts, rest, m.capacity
}

// keep caches the capacity for some counts.
func (m *Memo) keep(counts rule.Counts, answered *rule.Capacity) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.capacity = cachedCapacity{known: true, counts: counts, capacity: answered}
}

// finder looks up requests in the cache. Lists usually have the same order, so finder first
// tries the position after the position of the previous request, and makes a map only if
// the orders differ.
func (m *Memo) finder() func(int, rule.Request) (int, bool) {
	var index map[key]int
	shift := 0
	return func(i int, request rule.Request) (int, bool) {
		if at := i + shift; at >= 0 && at < len(m.requests) && sameRequest(&m.requests[at], &request) {
			return at, true
		}
		if index == nil {
			index = make(map[key]int, len(m.requests))
			for at, known := range m.requests {
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

// Remember replaces the cached verdicts by the verdicts of requests, in their order. Neither list
// is modified afterwards. Transient verdicts, such as rule.CodeNotReached, are evaluated again the
// next time.
func (m *Memo) Remember(requests []rule.Request, verdicts []rule.Verdict, env rule.Environment, version uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests, m.verdicts, m.version, m.bytes = requests, verdicts, version, bytesOf(requests, verdicts)
	m.transient = slices.ContainsFunc(verdicts, isTransient)
	m.counts, m.namespace = env.Counts, env.Namespace
}

// key identifies a request like Request.Key, without building a string.
type key struct {
	pod   types.UID
	stage appsv1alpha1.TransitionStage
	id    string
}

func keyOf(request rule.Request) key {
	return key{pod: request.Pod.UID, stage: request.Stage, id: request.ID}
}

// sameRequest compares keys. It does not read a pod if both are the same pointer.
func sameRequest(a, b *rule.Request) bool {
	return a.ID == b.ID && a.Stage == b.Stage && (a.Pod == b.Pod || a.Pod.UID == b.Pod.UID)
}

// sameFacts reports whether a rule reads equal facts from both requests.
func sameFacts(a, b rule.Request) bool {
	return a.Type == b.Type && a.Cause == b.Cause && a.Attempt == b.Attempt && a.Task == b.Task &&
		(a.Pod == b.Pod || a.Pod.Version == b.Pod.Version && b.Pod.Version != "")
}

func sameNamespace(a, b rule.Namespace) bool {
	return a.Name == b.Name && maps.Equal(a.Labels, b.Labels)
}

// isTransient reports whether the evaluation failed, or the module requires another evaluation: the
// next verdict may differ although nothing has changed.
func isTransient(verdict rule.Verdict) bool {
	switch verdict.Code {
	case rule.CodeEvaluationFailed, rule.CodeTimeout, rule.CodePolicyTooExpensive, rule.CodeNotReached:
		return true
	default:
		return verdict.RetryAfter > 0
	}
}

func pick(requests []rule.Request, positions []int) []rule.Request {
	if len(positions) == len(requests) {
		return requests
	}
	picked := make([]rule.Request, 0, len(positions))
	for _, i := range positions {
		picked = append(picked, requests[i])
	}
	return picked
}
