package podtransitionrule

import (
	"github.com/podops-dev/podops/pkg/fairshare"
	"github.com/podops-dev/podops/pkg/rule/memo"
)

// recollection is what a rule remembers of the requests that wait, from one round to the next. Rules
// answer the same without it: they are evaluated again, and their words are made again.
type recollection struct {
	memo *memo.Memo

	// fallback is the memo of the program that is evaluated while the rule is under quarantine.
	fallback *memo.Memo

	messageCache *messageCache
	lastDenials  lastDenials
	nextChecks   nextChecks

	// counted are the requests that counters have counted.
	counted map[string]counted

	// charged is what it counted when it was kept last.
	charged int64
}

// recollections are those of the rules of all namespaces, bounded in bytes. The namespace whose rules
// remember the most forgets first.
type recollections = fairshare.Cache[*preparedRule, *recollection]

// Bytes of the parts of a recollection besides their texts, as a test measures them.
const (
	recollectionBytes = 2048
	refusalBytes      = 380
	nextCheckBytes    = 230
	countedBytes      = 210
	mismatchBytes     = 80
)

func newRecollection() *recollection {
	return &recollection{memo: memo.New(), fallback: memo.New(), messageCache: newWording(), nextChecks: nextChecks{}}
}

// bytes is about what a recollection takes.
func (r *recollection) bytes() int64 {
	bytes := recollectionBytes + r.memo.Bytes() + r.fallback.Bytes() + r.messageCache.bytes()
	bytes += int64(len(r.nextChecks)*nextCheckBytes + len(r.counted)*countedBytes)
	for _, refused := range r.lastDenials {
		bytes += refusalBytes + int64(len(refused.verdict.Message)+len(refused.verdict.Details))
	}
	return bytes
}

// isEmpty reports whether nothing is remembered that counts.
func (r *recollection) isEmpty() bool { return r.bytes() == recollectionBytes }

// recall returns what a rule remembers.
func (p *programs) recall(rule *preparedRule) *recollection {
	if known, ok := p.remembered.Get(rule); ok {
		return known
	}
	return newRecollection()
}

// remember keeps what a rule is to remember, if there is room for it.
func (p *programs) remember(rule *preparedRule, what *recollection) {
	if what.isEmpty() {
		p.remembered.Remove(rule)
		return
	}
	bytes := what.bytes()
	if known, ok := p.remembered.Get(rule); ok && known == what && what.charged == bytes {
		return
	}
	what.charged = bytes
	p.remembered.Add(rule.id.Object.Namespace, rule, what, bytes)
}

// forgetRules drops what rules remember that are not asked any more.
func (p *programs) forgetRules(gone, kept []*preparedRule) {
	present := make(map[*preparedRule]bool, len(kept))
	for _, rule := range kept {
		present[rule] = true
	}
	for _, rule := range gone {
		if !present[rule] {
			p.remembered.Remove(rule)
		}
	}
}

// open brings back what the rule remembers, until close.
func (s *ruleEvaluation) open() *recollection {
	if s.recalled == nil {
		s.recalled = s.programs.recall(s.prepared)
	}
	return s.recalled
}

// close keeps what the rule remembers, and lets go of it: a round has many rules, and does not hold what
// all of them remember at the same time.
func (s *ruleEvaluation) close() {
	if s.recalled != nil {
		s.programs.remember(s.prepared, s.recalled)
		s.recalled = nil
	}
}

// with lets use change what the rule remembers.
func (s *ruleEvaluation) with(use func(*recollection)) {
	if s.recalled != nil {
		use(s.recalled)
		return
	}
	use(s.open())
	s.close()
}

// Bytes that a round holds for each request that a rule is asked about.
const (
	// findingBytes are those of a finding. Each reason comes on top, with its texts.
	findingBytes = 160
	reasonBytes  = 256

	// openBytes are those of the verdict of a user's module.
	openBytes = 2*findingBytes + 128
)

// defaultRoundBytes is how much of that one round may hold by default. A round that would hold more files the first reason
// of each request, and not all of them; users' modules that it has no room for withhold with
// rule.CodeNotReached.
const defaultRoundBytes = 32 << 20

// holds reports whether the round may hold so many more bytes, and counts them then.
func (t *turn) holds(bytes int64) bool {
	if t.held+bytes > t.most {
		return false
	}
	t.held += bytes
	return true
}

// file keeps what a rule said about a request. Without room for it the request counts as one that the
// rule was not asked about; that it is withheld is filed elsewhere.
func (d *decision) file(eval *ruleEvaluation, key string, found finding) {
	_, known := eval.findings[key]
	if known || d.turn.holds(findingBytes) {
		eval.findings[key] = found
	}
}
