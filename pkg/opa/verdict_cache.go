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

	"github.com/podops-dev/podops/pkg/rule"
)

// lens is how much of a request a built-in rule gets to see: the labels that it names, whether the
// pod skips it, the type of the operation if it has conditions, whether the pod is available if it is
// an availablePolicy, and how far the call has come if it is a webhook. Rego is given nothing else, so requests that look the same through it are
// one question with one answer. (The UID and the id are in the question as its name; what they are,
// the library does not read.)
type projection struct {
	rule       string
	labels     []string // sorted
	operations bool
	available  bool
	task       bool
}

// lensOf reads the literal of a rule of a built-in kind; no literal is an empty one.
func lensOf(kind rule.Kind, literal []byte) (projection, error) {
	says := struct {
		Name       string                `json:"name"`
		Conditions []string              `json:"conditions"`
		Filter     *metav1.LabelSelector `json:"filter"`
		Requires   *metav1.LabelSelector `json:"requires"`
	}{}
	if err := json.Unmarshal([]byte(cmp.Or(string(literal), "{}")), &says); err != nil {
		return projection{}, fmt.Errorf("reading the literal: %w", err)
	}
	named := map[string]bool{}
	for _, selector := range []*metav1.LabelSelector{says.Filter, says.Requires} {
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
		rule:       says.Name,
		labels:     slices.Sorted(maps.Keys(named)),
		operations: len(says.Conditions) > 0,
		available:  kind == rule.KindAvailablePolicy,
		task:       kind == rule.KindWebhook,
	}, nil
}

// appendKey appends the projection of a request. Two requests have the same bytes if, and only if,
// they look the same.
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

func appendText(projected []byte, text string) []byte {
	return append(binary.AppendUvarint(projected, uint64(len(text))), text...)
}

// see is the request with nothing in it but what is seen, and its key. It has no version: nothing
// that is made of it may be taken for the whole pod.
func (l projection) see(request rule.Request) rule.Request {
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
	seen := rule.Request{Pod: pod, Stage: request.Stage, ID: request.ID}
	if l.operations {
		seen.Type = request.Type
	}
	if l.task {
		seen.Task = rule.Task{
			State: request.Task.State, Class: request.Task.Class, RetryDue: request.Task.RetryDue, Answered: request.Task.Answered,
		}
	}
	return seen
}

// maxCachedBytes bounds what one rule remembers, about.
const maxCachedBytes = 16 << 10

// entryOverhead is about what a map needs for one verdict.
const entryOverhead = 160

// maxRooms bounds what one rule remembers of its room. Counts go up and down while pods are rolled.
const maxRooms = 16

// verdictCache remembers the verdicts of one built-in rule by projection, and its last capacities. It is safe
// for concurrent use.
type verdictCache struct {
	projection projection

	// counted: the verdicts depend on the counts, not just the room. Those that are remembered are
	// for counts then.
	counted bool

	// memory holds *cachedVerdicts by cacheKey. owner is charged for them.
	memory *memory
	owner  string

	// mu guards the cachedVerdicts.
	mu sync.Mutex
}

// cacheKey is that of one rule.
type cacheKey struct{ of *verdictCache }

// cachedVerdicts are the verdicts of one rule by projection.
type cachedVerdicts struct {
	verdicts map[string]rule.Verdict
	bytes    int
	counts   rule.Counts

	// rooms by counts. They are shared, not modified.
	rooms map[rule.Counts]*rule.Capacity
}

func newVerdictCache(remembered *memory, owner string, seen projection, counted bool) *verdictCache {
	return &verdictCache{projection: seen, counted: counted, memory: remembered, owner: owner}
}

// seen are the cachedVerdicts, empty ones if they are not remembered.
func (s *verdictCache) seen() *cachedVerdicts {
	if known, ok := s.memory.Get(cacheKey{s}); ok {
		return known.(*cachedVerdicts)
	}
	return &cachedVerdicts{}
}

// question is what has to be asked of Rego, and who waits for it.
type question struct {
	// asked look different from each other.
	asked []rule.Request

	// projections are the bytes of each, the keys of the cache.
	projections []string

	// waiting are the keys of the requests that look like each of them.
	waiting [][]string
}

func (q question) part(start, end int) question {
	return question{asked: q.asked[start:end], projections: q.projections[start:end], waiting: q.waiting[start:end]}
}

// recall answers what is known into verdicts, and returns the question about the rest. A request
// that is in there twice is an error: one of the two would get the verdict of the other. The room
// is nil when it is not known for these counts.
func (s *verdictCache) recall(
	counts rule.Counts, requests []rule.Request, verdicts map[string]rule.Verdict,
) (rest question, room *rule.Capacity, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.seen()
	if s.counted && counts != seen.counts {
		seen.counts, seen.verdicts, seen.bytes = counts, nil, 0
	}
	var places map[string]int
	buffer := make([]byte, 0, 128)
	for _, request := range requests {
		key := request.Key()
		if _, twice := verdicts[key]; twice {
			return question{}, nil, fmt.Errorf("asked twice about request %q", key)
		}
		buffer = s.projection.appendKey(buffer[:0], request)
		known, ok := seen.verdicts[string(buffer)]
		verdicts[key] = known // a withheld one until the rest is asked
		if ok {
			continue
		}
		if places == nil {
			places = map[string]int{}
		}
		at, twice := places[string(buffer)]
		if !twice {
			at = len(rest.asked)
			projected := string(buffer)
			places[projected] = at
			rest.asked = append(rest.asked, s.projection.see(request))
			rest.projections = append(rest.projections, projected)
			rest.waiting = append(rest.waiting, nil)
		}
		rest.waiting[at] = append(rest.waiting[at], key)
	}
	return rest, seen.rooms[counts], nil
}

// answer gives those who wait the verdicts of Rego, and remembers them.
func (s *verdictCache) answer(counts rule.Counts, asked question, result rule.Result, verdicts map[string]rule.Verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.seen()
	if result.Capacity != nil {
		seen.rememberRoom(counts, result.Capacity)
	}
	current := !s.counted || counts == seen.counts // the counts have not changed meanwhile
	for i, request := range asked.asked {
		verdict, ok := result.Verdicts[request.Key()]
		for _, key := range asked.waiting[i] {
			verdicts[key] = verdict
		}
		if ok && current {
			seen.remember(asked.projections[i], verdict)
		}
	}
	s.memory.Add(s.owner, cacheKey{s}, seen, seen.size())
}

// size is about what the cachedVerdicts take.
func (s *cachedVerdicts) size() int64 { return int64(s.bytes + entryOverhead*(2+len(s.rooms))) }

// remember starts over when there is no room left: what is still needed comes back.
func (s *cachedVerdicts) remember(projected string, verdict rule.Verdict) {
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

func (s *cachedVerdicts) rememberRoom(counts rule.Counts, room *rule.Capacity) {
	if s.rooms == nil || len(s.rooms) >= maxRooms {
		s.rooms = map[rule.Counts]*rule.Capacity{}
	}
	s.rooms[counts] = room
}
