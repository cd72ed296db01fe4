package engine

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podops-dev/podops/pkg/policy"
)

// lens is how much of a request a built-in rule gets to see: the labels that it names, whether the
// pod skips it, the type of the operation if it has conditions, whether the pod is available if it is
// an availablePolicy, and how far the call has come if it is a webhook. Rego is given nothing else, so requests that look the same through it are
// one question with one answer. (The UID and the id are in the question as its name; what they are,
// the library does not read.)
type lens struct {
	rule       string
	labels     []string // sorted
	operations bool
	available  bool
	task       bool
}

// lensOf reads the literal of a rule of a built-in kind; no literal is an empty one.
func lensOf(kind policy.Kind, literal []byte) (lens, error) {
	says := struct {
		Name       string                `json:"name"`
		Conditions []string              `json:"conditions"`
		Filter     *metav1.LabelSelector `json:"filter"`
		Requires   *metav1.LabelSelector `json:"requires"`
	}{}
	if err := json.Unmarshal([]byte(cmp.Or(string(literal), "{}")), &says); err != nil {
		return lens{}, fmt.Errorf("reading the literal: %w", err)
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
	return lens{
		rule:       says.Name,
		labels:     slices.Sorted(maps.Keys(named)),
		operations: len(says.Conditions) > 0,
		available:  kind == policy.KindAvailablePolicy,
		task:       kind == policy.KindWebhook,
	}, nil
}

// appendSight appends what is seen of a request. Two requests have the same bytes if, and only if,
// they look the same.
func (l lens) appendSight(sight []byte, request policy.Request) []byte {
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
	sight = append(sight, flags)
	if l.task {
		sight = appendText(appendText(sight, string(request.Task.State)), request.Task.Class)
	}
	if l.operations {
		sight = appendText(sight, request.Type)
	}
	for _, label := range l.labels {
		value, ok := request.Pod.Labels[label]
		if !ok {
			sight = append(sight, 0)
			continue
		}
		sight = appendText(append(sight, 1), value)
	}
	return sight
}

func appendText(sight []byte, text string) []byte {
	return append(binary.AppendUvarint(sight, uint64(len(text))), text...)
}

// see is the request with nothing in it but what is seen, and its key. It has no version: nothing
// that is made of it may be taken for the whole pod.
func (l lens) see(request policy.Request) policy.Request {
	pod := &policy.PodFact{
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
	seen := policy.Request{Pod: pod, Stage: request.Stage, ID: request.ID}
	if l.operations {
		seen.Type = request.Type
	}
	if l.task {
		seen.Task = policy.Task{State: request.Task.State, Class: request.Task.Class, RetryDue: request.Task.RetryDue}
	}
	return seen
}

// maxSightBytes bounds what one rule remembers, about.
const maxSightBytes = 16 << 10

// sightOverhead is about what a map needs for one verdict.
const sightOverhead = 160

// maxRooms bounds what one rule remembers of its room. Counts go up and down while pods are rolled.
const maxRooms = 16

// sights remembers the verdicts of one built-in rule by what it saw, and its last rooms. It is safe
// for concurrent use.
type sights struct {
	lens lens

	// counted: the verdicts depend on the counts, not just the room. Those that are remembered are
	// for counts then.
	counted bool

	mu       sync.Mutex
	verdicts map[string]policy.Verdict
	bytes    int
	counts   policy.Counts

	// rooms by counts. They are shared, not modified.
	rooms map[policy.Counts]*policy.Room
}

// question is what has to be asked of Rego, and who waits for it.
type question struct {
	// asked look different from each other.
	asked []policy.Request

	// sights of those, as they are remembered.
	sights []string

	// waiting are the keys of the requests that look like each of them.
	waiting [][]string
}

func (q question) part(start, end int) question {
	return question{asked: q.asked[start:end], sights: q.sights[start:end], waiting: q.waiting[start:end]}
}

// recall answers what is known into verdicts, and returns the question about the rest. A request
// that is in there twice is an error: one of the two would get the verdict of the other. The room
// is nil when it is not known for these counts.
func (s *sights) recall(
	counts policy.Counts, requests []policy.Request, verdicts map[string]policy.Verdict,
) (rest question, room *policy.Room, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counted && counts != s.counts {
		s.counts, s.verdicts, s.bytes = counts, nil, 0
	}
	var places map[string]int
	buffer := make([]byte, 0, 128)
	for _, request := range requests {
		key := request.Key()
		if _, twice := verdicts[key]; twice {
			return question{}, nil, fmt.Errorf("asked twice about request %q", key)
		}
		buffer = s.lens.appendSight(buffer[:0], request)
		known, ok := s.verdicts[string(buffer)]
		verdicts[key] = known // a withheld one until the rest is asked
		if ok {
			continue
		}
		if places == nil {
			places = map[string]int{}
		}
		at, seen := places[string(buffer)]
		if !seen {
			at = len(rest.asked)
			sight := string(buffer)
			places[sight] = at
			rest.asked = append(rest.asked, s.lens.see(request))
			rest.sights = append(rest.sights, sight)
			rest.waiting = append(rest.waiting, nil)
		}
		rest.waiting[at] = append(rest.waiting[at], key)
	}
	return rest, s.rooms[counts], nil
}

// answer gives those who wait the verdicts of Rego, and remembers them.
func (s *sights) answer(counts policy.Counts, asked question, result policy.Result, verdicts map[string]policy.Verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if result.Room != nil {
		s.rememberRoom(counts, result.Room)
	}
	current := !s.counted || counts == s.counts // nobody asked on other counts meanwhile
	for i, request := range asked.asked {
		verdict, ok := result.Verdicts[request.Key()]
		for _, key := range asked.waiting[i] {
			verdicts[key] = verdict
		}
		if ok && current {
			s.remember(asked.sights[i], verdict)
		}
	}
}

// remember starts anew when there is no room left: what is still needed comes back.
func (s *sights) remember(sight string, verdict policy.Verdict) {
	size := len(sight) + sightOverhead
	if s.bytes+size > maxSightBytes {
		s.verdicts, s.bytes = nil, 0
	}
	if size > maxSightBytes {
		return
	}
	if s.verdicts == nil {
		s.verdicts = map[string]policy.Verdict{}
	}
	if _, known := s.verdicts[sight]; !known {
		s.bytes += size
	}
	s.verdicts[sight] = verdict
}

func (s *sights) rememberRoom(counts policy.Counts, room *policy.Room) {
	if s.rooms == nil || len(s.rooms) >= maxRooms {
		s.rooms = map[policy.Counts]*policy.Room{}
	}
	s.rooms[counts] = room
}
