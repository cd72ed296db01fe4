package load

import (
	"cmp"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// Report is the result of a run.
type Report struct {
	Seconds float64 `json:"seconds"`

	Reads  Counts `json:"reads"`
	Writes Counts `json:"writes"`

	// LostWrites are acknowledged writes that are not in the store in the end. RepeatedWrites
	// are there more than once. Examples has some of both.
	LostWrites     int      `json:"lostWrites"`
	RepeatedWrites int      `json:"repeatedWrites"`
	Examples       []string `json:"examples,omitempty"`

	// Linearizable is porcupine's result: Ok, Illegal or Unknown.
	Linearizable porcupine.CheckResult `json:"linearizable"`

	LeaderChanges []LeaderChange `json:"leaderChanges"`

	// Failures are failed attempts by leader change, kind and reason. Each attempt is one
	// request to one member; an operation is attempted again.
	Failures []FailureCount `json:"failures"`
	// DroppedFailures were not recorded.
	DroppedFailures int `json:"droppedFailures,omitempty"`

	// Versions counts the operations by the version of the member that answered.
	Versions map[string]int `json:"versions"`
}

// Counts counts operations.
type Counts struct {
	Succeeded int `json:"succeeded"`
	// Failed are operations of which no attempt succeeded in time.
	Failed int `json:"failed"`
	// FailedAttempts are attempts that failed.
	FailedAttempts int `json:"failedAttempts"`
	// MaxMillis is the longest operation that succeeded, attempts included.
	MaxMillis int64 `json:"maxMillis"`
}

// LeaderChange is a change of the leader that answers have shown. Between From, the last
// answer of the old leader, and To, the first of the new one, no request was served.
type LeaderChange struct {
	From      time.Time `json:"from"`
	To        time.Time `json:"to"`
	OldLeader string    `json:"oldLeader"`
	NewLeader string    `json:"newLeader"`
	Term      uint64    `json:"term"`
	Millis    int64     `json:"millis"`
}

// FailureCount counts failed attempts.
type FailureCount struct {
	// LeaderChange is the term of the change at whose time they failed, 0: at no change.
	LeaderChange uint64 `json:"leaderChange"`
	Kind         Kind   `json:"kind"`
	Reason       string `json:"reason"`
	Count        int    `json:"count"`
	Example      string `json:"example"`
}

// maxExamples bounds the examples of a report.
const maxExamples = 10

// report returns the report of a history. stored has the value of each key in the end.
func (h *History) report(stored map[string]string, timeout time.Duration) Report {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := Report{DroppedFailures: h.dropped, Versions: h.versions, LeaderChanges: changes(h.terms)}
	var first, last time.Time
	for _, o := range h.operations {
		counts := r.counts(o.Kind)
		if o.Outcome == Succeeded {
			counts.Succeeded++
			counts.MaxMillis = max(counts.MaxMillis, o.End.Sub(o.Start).Milliseconds())
		} else {
			counts.Failed++
		}
		if first.IsZero() || o.Start.Before(first) {
			first = o.Start
		}
		if o.End.After(last) {
			last = o.End
		}
	}
	r.Seconds = last.Sub(first).Seconds()
	for _, f := range h.failures {
		r.counts(f.Kind).FailedAttempts++
	}
	r.Failures = countFailures(h.failures, r.LeaderChanges)
	r.verify(h.operations, stored)
	r.Linearizable = Check(h.operations, timeout)
	return r
}

func (r *Report) counts(kind Kind) *Counts {
	if kind == Read {
		return &r.Reads
	}
	return &r.Writes
}

// verify compares acknowledged writes with the store.
func (r *Report) verify(operations []Operation, stored map[string]string) {
	found := map[string]int{}
	for _, value := range stored {
		for _, token := range tokens(value) {
			found[token]++
		}
	}
	for _, o := range operations {
		if o.Kind != Write {
			continue
		}
		example := ""
		switch n := found[o.Token]; {
		case n == 0 && o.Outcome == Succeeded:
			r.LostWrites++
			example = "lost: " + o.Key + " " + o.Token
		case n > 1:
			r.RepeatedWrites++
			example = "repeated: " + o.Key + " " + o.Token
		}
		if example != "" && len(r.Examples) < maxExamples {
			r.Examples = append(r.Examples, example)
		}
	}
}

// changes returns the changes between terms in the order of their numbers.
func changes(terms []term) []LeaderChange {
	terms = slices.Clone(terms)
	slices.SortFunc(terms, func(a, b term) int { return cmp.Compare(a.number, b.number) })
	result := []LeaderChange{}
	for i := 1; i < len(terms); i++ {
		old, next := terms[i-1], terms[i]
		result = append(result, LeaderChange{
			From: old.last, To: next.first, OldLeader: old.leader, NewLeader: next.leader, Term: next.number, Millis: next.first.Sub(old.last).Milliseconds(),
		})
	}
	return result
}

// slack widens a change: an attempt begins at the old leader, or ends after the new leader
// has answered another attempt.
const slack = 2 * time.Second

// countFailures counts failures by the change at whose time they happened, kind and reason.
func countFailures(failures []Failure, all []LeaderChange) []FailureCount {
	type group struct {
		change uint64
		kind   Kind
		reason string
	}
	counts := map[group]FailureCount{}
	for _, f := range failures {
		key := group{changeAt(f.At, all), f.Kind, f.Reason}
		c, ok := counts[key]
		if !ok {
			c = FailureCount{LeaderChange: key.change, Kind: key.kind, Reason: key.reason, Example: f.At.UTC().Format(time.RFC3339Nano) + " " + f.Detail}
		}
		c.Count++
		counts[key] = c
	}
	result := []FailureCount{}
	for _, c := range counts {
		result = append(result, c)
	}
	slices.SortFunc(result, func(a, b FailureCount) int {
		return cmp.Or(cmp.Compare(a.LeaderChange, b.LeaderChange), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Reason, b.Reason))
	})
	return result
}

// changeAt returns the term of the change nearest to a moment, or 0 if no change is near.
func changeAt(at time.Time, all []LeaderChange) uint64 {
	nearest, result := slack, uint64(0)
	for _, c := range all {
		distance := max(c.From.Sub(at), at.Sub(c.To), 0)
		if distance < nearest {
			nearest, result = distance, c.Term
		}
	}
	return result
}
