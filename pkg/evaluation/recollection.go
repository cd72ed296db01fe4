package evaluation

import (
	"github.com/podops-dev/podops/pkg/fairshare"
	"github.com/podops-dev/podops/pkg/rule/memo"
)

// recollection has the verdicts of a rule on the requests that wait, and their explanations, from one round
// to the next. It only saves work: without it the rule is evaluated again, and its messages are made again.
type recollection struct {
	memo *memo.Memo

	// fallback is the memo of the program that is evaluated while the rule is under quarantine.
	fallback *memo.Memo

	messageCache *messageCache
	lastDenials  lastDenials
	nextChecks   nextChecks

	// counted are the requests that counters have counted.
	counted map[string]counted

	// charged is the number of bytes that the store counts for it.
	charged int64
}

// recollections has the recollection of each rule of all namespaces, bounded in bytes. The namespace with
// the largest recollections loses its own first.
type recollections = fairshare.Cache[*preparedRule, *recollection]

// Bytes of the parts of a recollection besides their texts, as a test measures them.
const (
	recollectionBytes = 2048
	denialBytes       = 380
	nextCheckBytes    = 230
	countedBytes      = 210
	mismatchBytes     = 80
)

func newRecollection() *recollection {
	return &recollection{memo: memo.New(), fallback: memo.New(), messageCache: newMessageCache(), nextChecks: nextChecks{}}
}

// bytes returns about how many bytes a recollection takes.
func (r *recollection) bytes() int64 {
	bytes := recollectionBytes + r.memo.Bytes() + r.fallback.Bytes() + r.messageCache.bytes()
	bytes += int64(len(r.nextChecks)*nextCheckBytes + len(r.counted)*countedBytes)
	for _, denied := range r.lastDenials {
		bytes += denialBytes + int64(len(denied.verdict.Message)+len(denied.verdict.Details))
	}
	return bytes
}

// isEmpty reports whether there is nothing to keep.
func (r *recollection) isEmpty() bool { return r.bytes() == recollectionBytes }

// recall returns the recollection of a rule, empty at first.
func (e *Evaluator) recall(rule *preparedRule) *recollection {
	if known, ok := e.remembered.Get(rule); ok {
		return known
	}
	return newRecollection()
}

// remember keeps the recollection of a rule, if there is memory for it.
func (e *Evaluator) remember(rule *preparedRule, recalled *recollection) {
	if recalled.isEmpty() {
		e.remembered.Remove(rule)
		return
	}
	bytes := recalled.bytes()
	if known, ok := e.remembered.Get(rule); ok && known == recalled && recalled.charged == bytes {
		return
	}
	recalled.charged = bytes
	e.remembered.Add(rule.id.Ruleset.Namespace, rule, recalled, bytes)
}

// recollect lets use modify the recollection of a rule.
func (e *Evaluator) recollect(rule *preparedRule, use func(*recollection)) {
	recalled := e.recall(rule)
	use(recalled)
	e.remember(rule, recalled)
}

// open returns the recollection of the rule, until close.
func (w *ruleWork) open() *recollection {
	if w.recalled == nil {
		w.recalled = w.evaluator.recall(w.prepared)
	}
	return w.recalled
}

// close keeps the recollection of the rule. A round has many rules, and never holds the recollections of
// all of them at the same time.
func (w *ruleWork) close() {
	if w.recalled != nil {
		w.evaluator.remember(w.prepared, w.recalled)
		w.recalled = nil
	}
}

// Bytes that a round holds for each request for which a rule is evaluated.
const (
	// findingBytes is the size of a finding. Each reason comes on top, with its texts.
	findingBytes = 160
	ReasonBytes  = 256

	// openBytes is the size of the verdict of a user's module.
	openBytes = 2*findingBytes + 128
)

// DefaultMemory is the number of these bytes that one round may hold by default. A round that would
// hold more keeps only the first reason of each request; users' modules for which it has no memory
// withhold with rule.CodeNotReached.
const DefaultMemory = 32 << 20
