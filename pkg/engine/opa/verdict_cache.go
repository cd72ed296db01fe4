package opa

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podops-dev/podops/pkg/core/rule"
)

// projection is the part of a request that a built-in rule reads: the labels that it names, whether
// the pod skips it, the type of the operation if it has conditions, whether the pod is available if
// it is an availablePolicy, the state of the task if it is a webhook, and the approval if it is an approval. The input of Rego has
// nothing else, so requests with equal projections have the same verdict. (The input also has the
// UID and the id, as the key of the request, which the library does not read.)
type projection struct {
	rule       string
	labels     []string // sorted
	operations bool
	available  bool
	task       bool
	approval   bool
}

// newProjection returns the projection for a rule of a built-in kind; an empty literal is an empty object.
func newProjection(kind rule.Kind, literal []byte) (projection, error) {
	literalFields := struct {
		Name       string                `json:"name"`
		Conditions []string              `json:"conditions"`
		Filter     *metav1.LabelSelector `json:"filter"`
		Requires   *metav1.LabelSelector `json:"requires"`
	}{}
	if err := json.Unmarshal([]byte(cmp.Or(string(literal), "{}")), &literalFields); err != nil {
		return projection{}, fmt.Errorf("reading the literal: %w", err)
	}
	named := map[string]bool{}
	for _, selector := range []*metav1.LabelSelector{literalFields.Filter, literalFields.Requires} {
		if selector == nil {
			continue
		}
		for label := range selector.MatchLabels {
			named[label] = true
		}
		for _, expression := range selector.MatchExpressions {
			named[expression.Key] = true
		}
	}
	return projection{
		rule:       literalFields.Name,
		labels:     slices.Sorted(maps.Keys(named)),
		operations: len(literalFields.Conditions) > 0,
		available:  kind == rule.KindAvailablePolicy,
		task:       kind == rule.KindWebhook,
		approval:   kind == rule.KindApproval,
	}, nil
}

// appendKey appends the projection of a request. Two requests have the same bytes if, and only if,
// their projections are equal.
func (l projection) appendKey(projected []byte, request rule.Request) []byte {
	flags := byte(0)
	if slices.Contains(request.Pod.SkipRules, l.rule) {
		flags |= 1
	}
	if l.available && request.Pod.Available {
		flags |= 2
	}
	if l.task && request.Task.RetryDue {
		flags |= 4
	}
	if l.task && request.Task.Answered {
		flags |= 8
	}
	projected = append(projected, flags)
	if l.task {
		projected = appendText(appendText(projected, string(request.Task.State)), request.Task.Class)
	}
	if l.approval {
		projected = appendApproval(projected, request.Approval)
	}
	if l.operations {
		projected = appendText(projected, request.Type)
	}
	for _, label := range l.labels {
		value, ok := request.Pod.Labels[label]
		if !ok {
			projected = append(projected, 0)
			continue
		}
		projected = appendText(append(projected, 1), value)
	}
	return projected
}

// appendApproval appends what a rule reads of an approval.
func appendApproval(projected []byte, approval *rule.Approval) []byte {
	if approval == nil {
		return append(projected, 0)
	}
	current := byte(1)
	if approval.Current {
		current = 2
	}
	projected = appendText(appendText(append(projected, current), approval.Revision), approval.Author)
	for _, users := range [][]string{approval.ApprovedBy, approval.DeniedBy} {
		projected = binary.AppendUvarint(projected, uint64(len(users)))
		for _, user := range users {
			projected = appendText(projected, user)
		}
	}
	return projected
}

func appendText(projected []byte, text string) []byte {
	return append(binary.AppendUvarint(projected, uint64(len(text))), text...)
}

// project returns the request with only the projected fields, and its key. Its pod has no version: no
// term that is made from it may be cached as the term of the whole pod.
func (l projection) project(request rule.Request) rule.Request {
	pod := &rule.PodFact{
		UID:       request.Pod.UID,
		Labels:    map[string]string{},
		Available: l.available && request.Pod.Available,
	}
	if slices.Contains(request.Pod.SkipRules, l.rule) {
		pod.SkipRules = []string{l.rule}
	}
	for _, label := range l.labels {
		if value, ok := request.Pod.Labels[label]; ok {
			pod.Labels[label] = value
		}
	}
	projected := rule.Request{Pod: pod, Stage: request.Stage, ID: request.ID}
	if l.operations {
		projected.Type = request.Type
	}
	if l.approval {
		projected.Approval = request.Approval
	}
	if l.task {
		projected.Task = rule.Task{
			State: request.Task.State, Class: request.Task.Class, RetryDue: request.Task.RetryDue, Answered: request.Task.Answered,
		}
	}
	return projected
}

// maxCachedBytes is roughly the limit for one rule's cached verdicts.
const maxCachedBytes = 16 << 10

// entryOverhead is roughly the memory that a map needs for one verdict.
const entryOverhead = 160

// maxCapacities bounds the cached capacities of one rule. Counts go up and down during a rolling update.
const maxCapacities = 16

// verdictCache caches the verdicts of one built-in rule by projection, and its last capacities. It
// is safe for concurrent use.
type verdictCache struct {
	projection projection

	// counted is set if the verdicts, and not just the capacity, depend on the counts. The cached
	// verdicts are then valid for counts only.
	counted bool

	// memory holds *cachedVerdicts by cacheKey. owner is charged for them.
	memory *memory
	owner  string

	// mu guards the cachedVerdicts.
	mu sync.Mutex
}

// cacheKey is the key of one rule's cachedVerdicts.
type cacheKey struct{ of *verdictCache }

// cachedVerdicts are the verdicts of one rule by projection.
type cachedVerdicts struct {
	verdicts map[string]rule.Verdict
	bytes    int
	counts   rule.Counts

	// capacities are the capacities by counts. They are shared, and not modified.
	capacities map[rule.Counts]*rule.Capacity
}

func newVerdictCache(remembered *memory, owner string, cached projection, counted bool) *verdictCache {
	return &verdictCache{projection: cached, counted: counted, memory: remembered, owner: owner}
}

// cached returns the cachedVerdicts, which are empty before the first evaluation.
func (s *verdictCache) cached() *cachedVerdicts {
	if known, ok := s.memory.Get(cacheKey{s}); ok {
		return known.(*cachedVerdicts)
	}
	return &cachedVerdicts{}
}

// misses has the requests that Rego must evaluate, and the requests that share their verdicts.
type misses struct {
	// requests are requests with distinct projections.
	requests []rule.Request

	// projections are the bytes of their projections, the keys of the cache.
	projections []string

	// waiting are, for each of them, the keys of all requests with the same projection.
	waiting [][]string
}

func (q misses) part(start, end int) misses {
	return misses{requests: q.requests[start:end], projections: q.projections[start:end], waiting: q.waiting[start:end]}
}

// lookUp copies cached verdicts to verdicts, and returns the remaining requests. A duplicate
// request is an error: one of the two would get the verdict of the other. The capacity is nil if it
// is not cached for these counts.
func (s *verdictCache) lookUp(
	counts rule.Counts, requests []rule.Request, verdicts map[string]rule.Verdict,
) (rest misses, capacity *rule.Capacity, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cached := s.cached()
	if s.counted && counts != cached.counts {
		cached.counts, cached.verdicts, cached.bytes = counts, nil, 0
	}
	var places map[string]int
	buffer := make([]byte, 0, 128)
	for _, request := range requests {
		key := request.Key()
		if _, twice := verdicts[key]; twice {
			return misses{}, nil, fmt.Errorf("request %q is listed twice", key)
		}
		buffer = s.projection.appendKey(buffer[:0], request)
		known, ok := cached.verdicts[string(buffer)]
		verdicts[key] = known // withheld until Rego has evaluated it
		if ok {
			continue
		}
		if places == nil {
			places = map[string]int{}
		}
		at, twice := places[string(buffer)]
		if !twice {
			at = len(rest.requests)
			projected := string(buffer)
			places[projected] = at
			rest.requests = append(rest.requests, s.projection.project(request))
			rest.projections = append(rest.projections, projected)
			rest.waiting = append(rest.waiting, nil)
		}
		rest.waiting[at] = append(rest.waiting[at], key)
	}
	return rest, cached.capacities[counts], nil
}

// store copies the verdicts of Rego to all requests with the same projection, and caches them.
func (s *verdictCache) store(counts rule.Counts, evaluated misses, result rule.Result, verdicts map[string]rule.Verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cached := s.cached()
	if result.Capacity != nil {
		cached.addCapacity(counts, result.Capacity)
	}
	current := !s.counted || counts == cached.counts // the counts have not changed meanwhile
	for i, request := range evaluated.requests {
		verdict, ok := result.Verdicts[request.Key()]
		for _, key := range evaluated.waiting[i] {
			verdicts[key] = verdict
		}
		if ok && current {
			cached.add(evaluated.projections[i], verdict)
		}
	}
	s.memory.Add(s.owner, cacheKey{s}, cached, cached.size())
}

// size returns the approximate memory of the cachedVerdicts.
func (s *cachedVerdicts) size() int64 { return int64(s.bytes + entryOverhead*(2+len(s.capacities))) }

// add adds a verdict. It drops all others when the limit is reached: verdicts in use are added
// again.
func (s *cachedVerdicts) add(projected string, verdict rule.Verdict) {
	size := len(projected) + entryOverhead
	if s.bytes+size > maxCachedBytes {
		s.verdicts, s.bytes = nil, 0
	}
	if size > maxCachedBytes {
		return
	}
	if s.verdicts == nil {
		s.verdicts = map[string]rule.Verdict{}
	}
	if _, known := s.verdicts[projected]; !known {
		s.bytes += size
	}
	s.verdicts[projected] = verdict
}

func (s *cachedVerdicts) addCapacity(counts rule.Counts, capacity *rule.Capacity) {
	if s.capacities == nil || len(s.capacities) >= maxCapacities {
		s.capacities = map[rule.Counts]*rule.Capacity{}
	}
	s.capacities[counts] = capacity
}
