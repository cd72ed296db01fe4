package dispatch

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask"
)

// InFlight has the calls that this process makes, and their results until the status has them. It is safe
// for concurrent use. It ends with the process: the status of the PodTransitionRule has the tasks.
type InFlight struct {
	mu sync.Mutex

	// rules has the calls of each rule, by namespace: from the first call of the rule until Keep drops it.
	rules map[string]map[rule.RuleID]*ruleCalls
}

// ruleCalls are the calls of one rule.
type ruleCalls struct {
	// results that are not yet in status.
	results []Result

	// posts under way, or with a result that is not yet in status, by trace id.
	posts map[string]bool

	// polls of the tasks in status, by trace id.
	polls map[string]webhooktask.LastPoll
}

// NewInFlight returns an InFlight without calls.
func NewInFlight() *InFlight {
	return &InFlight{rules: map[string]map[rule.RuleID]*ruleCalls{}}
}

// Open adds a rule that makes calls, or would.
func (b *InFlight) Open(rule rule.RuleID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.opened(rule)
}

func (b *InFlight) opened(id rule.RuleID) *ruleCalls {
	namespace := id.Ruleset.Namespace
	if b.rules[namespace] == nil {
		b.rules[namespace] = map[rule.RuleID]*ruleCalls{}
	}
	if b.rules[namespace][id] == nil {
		b.rules[namespace][id] = &ruleCalls{posts: map[string]bool{}, polls: map[string]webhooktask.LastPoll{}}
	}
	return b.rules[namespace][id]
}

// read returns the calls of a rule; no calls, without an entry for the rule, if it is unknown.
func (b *InFlight) read(rule rule.RuleID) *ruleCalls {
	if calls := b.rules[rule.Ruleset.Namespace][rule]; calls != nil {
		return calls
	}
	return &ruleCalls{}
}

// Begin adds a call that is made now.
func (b *InFlight) Begin(call Call) {
	b.mu.Lock()
	defer b.mu.Unlock()
	calls := b.opened(call.Rule)
	if call.Post != nil {
		calls.posts[call.TraceID] = true
		return
	}
	last := calls.polls[call.TraceID]
	last.Running = true
	calls.polls[call.TraceID] = last
}

// Deliver keeps the result of a call, at the time of its end. Results of a deleted rule are dropped.
func (b *InFlight) Deliver(result Result, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	calls := b.rules[result.Call.Rule.Ruleset.Namespace][result.Call.Rule]
	if calls == nil {
		return
	}
	calls.results = append(calls.results, result)
	before, polled := calls.polls[result.Call.TraceID]
	if !polled {
		return // a POST stays known until the status has its result
	}
	last := webhooktask.LastPoll{At: now}
	if result.Failure != nil {
		last.Failures, last.RetryAfter = before.Failures+1, result.Failure.RetryAfter
	}
	calls.polls[result.Call.TraceID] = last
}

// Results returns the results of one rule that the status does not have yet.
func (b *InFlight) Results(rule rule.RuleID) []Result {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.read(rule).results)
}

// Stored drops results of a rule, which the status has now.
func (b *InFlight) Stored(rule rule.RuleID, stored []Result) {
	b.mu.Lock()
	defer b.mu.Unlock()
	calls := b.read(rule)
	calls.results = slices.DeleteFunc(calls.results, func(result Result) bool {
		return slices.ContainsFunc(stored, func(one Result) bool {
			return one.Call.TraceID == result.Call.TraceID && one.Post == result.Post && one.Poll == result.Poll && one.Failure == result.Failure
		})
	})
	for _, result := range stored {
		if result.Call.Post != nil {
			delete(calls.posts, result.Call.TraceID)
		}
	}
}

// Keep drops the rules of a namespace that are not present, with calls under way, and returns them.
func (b *InFlight) Keep(namespace string, present func(rule.RuleID) bool) (gone []rule.RuleID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for rule := range b.rules[namespace] {
		if !present(rule) {
			gone = append(gone, rule)
			delete(b.rules[namespace], rule)
		}
	}
	if len(b.rules[namespace]) == 0 {
		delete(b.rules, namespace)
	}
	return gone
}

// Posts returns the trace ids of a rule's POSTs that are under way in this process, or have a result that the status
// does not have yet.
func (b *InFlight) Posts(rule rule.RuleID) map[string]bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.read(rule).posts)
}

// LastPoll returns a function that returns the last poll of a rule's task.
func (b *InFlight) LastPoll(rule rule.RuleID) func(traceID string) webhooktask.LastPoll {
	return func(traceID string) webhooktask.LastPoll {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.read(rule).polls[traceID]
	}
}

// KeepPolls drops the polls of a rule whose tasks are not polled any more.
func (b *InFlight) KeepPolls(rule rule.RuleID, polled map[string]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.read(rule).polls, func(traceID string, _ webhooktask.LastPoll) bool { return !polled[traceID] })
}
