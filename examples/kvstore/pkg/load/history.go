package load

import (
	"sync"
	"time"
)

// Kind is the kind of an operation.
type Kind string

// The kinds.
const (
	Read  Kind = "read"
	Write Kind = "write"
)

// Outcome is how an operation ended.
type Outcome string

// The outcomes.
const (
	Succeeded Outcome = "succeeded" // answered; a write is acknowledged
	Rejected  Outcome = "rejected"  // certainly without effect
	Open      Outcome = "open"      // no answer: a write may have been applied, or may be later
)

// Operation is a read or a write with all of its attempts.
type Operation struct {
	Worker     int
	Kind       Kind
	Key        string
	Token      string // of a write
	Value      string // that a read returned
	Start, End time.Time
	Outcome    Outcome
}

// Failure is an attempt of an operation that failed.
type Failure struct {
	Kind   Kind
	Host   string
	Reason string // short, without addresses
	Detail string // the error
	At     time.Time
}

// success is the leader that served an operation.
type success struct {
	term   uint64
	leader string
	at     time.Time
}

const (
	// maxOperations and maxFailures bound a history.
	maxOperations = 500_000
	maxFailures   = 10_000
)

// History contains the operations that the workers record. It is safe for concurrent use.
type History struct {
	mu         sync.Mutex
	operations []Operation
	failures   []Failure
	dropped    int // failures beyond maxFailures
	terms      []term
	versions   map[string]int // operations by the version of the member that answered
}

// term is a term as it appears in answers.
type term struct {
	number      uint64
	leader      string
	first, last time.Time // of answers
}

func newHistory() *History { return &History{versions: map[string]int{}} }

// record adds an operation, and reports whether the history has room for another operation.
func (h *History) record(o Operation) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.operations = append(h.operations, o)
	return len(h.operations) < maxOperations
}

func (h *History) fail(f Failure) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.failures) == maxFailures {
		h.dropped++
		return
	}
	h.failures = append(h.failures, f)
}

// succeed notes the leader of an answer.
func (h *History) succeed(s success, version string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.versions[version]++
	for i := range h.terms {
		t := &h.terms[i]
		if t.number != s.term {
			continue
		}
		if s.at.Before(t.first) {
			t.first = s.at
		}
		if s.at.After(t.last) {
			t.last = s.at
		}
		return
	}
	h.terms = append(h.terms, term{number: s.term, leader: s.leader, first: s.at, last: s.at})
}

// Operations returns the recorded operations. It must not be modified.
func (h *History) Operations() []Operation {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.operations[:len(h.operations):len(h.operations)]
}
