package eventqueue

import (
	"slices"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/pkg/runtime/backoff"
)

// limits bound a backlog.
type limits struct {
	// entries and bytes of all namespaces together, namespaceEntries of each.
	entries, bytes, namespaceEntries int

	// rate and burst of each namespace, in events a second and in events.
	rate  rate.Limit
	burst int

	// totalRate and totalBurst of all namespaces together.
	totalRate  rate.Limit
	totalBurst int
}

// series identifies the events that are one series for a reader: events with one reason about one
// object. Kind and name are part of it, because a UID may be missing.
type series struct {
	namespace, kind, name string
	uid                   types.UID
	reason                string
}

// seriesSize is the size of a series and its last event besides the texts in them.
const seriesSize = 160

func (s series) bytes() int64 {
	return int64(seriesSize + len(s.namespace) + len(s.kind) + len(s.name) + len(s.uid) + len(s.reason))
}

// entry is an event that has not been sent, recorded count times.
type entry struct {
	series series

	regarding   corev1.ObjectReference
	related     *corev1.ObjectReference
	source      string
	annotations map[string]string

	eventType, reason, action, note string

	// first and last are when it was recorded, and count how often since it was last sent.
	first, last time.Time
	count       int32

	// due is when it may be sent.
	due   time.Time
	tries int
}

// entryOverhead is the memory of an entry without its texts, as measured by TestEntriesAreWeighed.
const entryOverhead = 1024

// size returns the bytes that an entry counts with.
func (e *entry) size() int {
	size := entryOverhead + len(e.note) + len(e.action) + len(e.reason)
	for key, value := range e.annotations {
		size += len(key) + len(value)
	}
	return size
}

// tenant holds the entries of one namespace, oldest first.
type tenant struct {
	namespace string
	entries   []*entry
	bySeries  map[series]*entry
	bytes     int
	limiter   *rate.Limiter
}

// backlog holds the events of all namespaces that have not been sent. Its zero value is not
// usable. It is not safe for concurrent use.
type backlog struct {
	limits  limits
	total   *rate.Limiter
	tenants map[string]*tenant

	// turns are the tenants in the order in which they take turns, next the tenant whose turn it
	// is.
	turns []*tenant
	next  int

	entries, bytes int
}

func newBacklog(l limits) *backlog {
	return &backlog{limits: l, total: rate.NewLimiter(l.totalRate, l.totalBurst), tenants: map[string]*tenant{}}
}

// add adds an entry, as a repetition of its series' entry if the backlog has
// that entry, and returns how many entries were dropped for it.
func (b *backlog) add(namespace string, e *entry) (dropped int) {
	t := b.tenant(namespace)
	if same, ok := t.bySeries[e.series]; ok {
		b.resize(t, -same.size())
		same.eventType, same.action, same.note, same.last = e.eventType, e.action, e.note, e.last
		same.count += e.count
		b.resize(t, same.size())
	} else {
		t.entries, t.bySeries[e.series] = append(t.entries, e), e
		b.entries++
		b.resize(t, e.size())
	}
	for len(t.entries) > b.limits.namespaceEntries {
		b.drop(t)
		dropped++
	}
	for b.entries > b.limits.entries || b.bytes > b.limits.bytes {
		b.drop(b.largest())
		dropped++
	}
	return dropped
}

func (b *backlog) tenant(namespace string) *tenant {
	t, ok := b.tenants[namespace]
	if !ok {
		t = &tenant{namespace: namespace, bySeries: map[series]*entry{}, limiter: rate.NewLimiter(b.limits.rate, b.limits.burst)}
		b.tenants[namespace], b.turns = t, append(b.turns, t)
	}
	return t
}

func (b *backlog) resize(t *tenant, by int) {
	t.bytes += by
	b.bytes += by
}

// largest returns the tenant with the most bytes, from which a full backlog drops entries.
func (b *backlog) largest() *tenant {
	return slices.MaxFunc(b.turns, func(x, y *tenant) int { return x.bytes - y.bytes })
}

// drop removes the oldest entry of the lowest priority: warnings are dropped last.
func (b *backlog) drop(t *tenant) {
	i := slices.IndexFunc(t.entries, func(e *entry) bool { return e.eventType == corev1.EventTypeNormal })
	b.remove(t, max(i, 0))
}

func (b *backlog) remove(t *tenant, i int) *entry {
	e := t.entries[i]
	t.entries = slices.Delete(t.entries, i, i+1)
	delete(t.bySeries, e.series)
	b.entries--
	b.resize(t, -e.size())
	return e
}

// take removes the entry to be sent now: the oldest that is due of the namespace whose turn
// it is. Without a due entry it returns nil and how soon an entry may be due, 0 when the
// backlog is empty.
func (b *backlog) take(now time.Time) (e *entry, wait time.Duration) {
	b.forget(now)
	if b.entries == 0 {
		return nil, 0
	}
	if left := untilToken(b.total, now); left > 0 {
		return nil, left
	}
	for i := range b.turns {
		at := (b.next + i) % len(b.turns)
		t := b.turns[at]
		index, left := t.due(now)
		if index < 0 {
			wait = backoff.MinDelay(wait, left)
			continue
		}
		t.limiter.AllowN(now, 1)
		b.total.AllowN(now, 1)
		b.next = (at + 1) % len(b.turns)
		return b.remove(t, index), 0
	}
	return nil, wait
}

// due returns the index of the first entry that may be sent, or -1 and how soon an entry
// may be sent; 0 when the tenant has no entries.
func (t *tenant) due(now time.Time) (index int, wait time.Duration) {
	if len(t.entries) == 0 {
		return -1, 0
	}
	if left := untilToken(t.limiter, now); left > 0 {
		return -1, left
	}
	for i, e := range t.entries {
		left := e.due.Sub(now)
		if left <= 0 {
			return i, 0
		}
		wait = backoff.MinDelay(wait, left)
	}
	return -1, wait
}

// untilToken returns the time until a limiter has a token; 0 when it has a token.
func untilToken(l *rate.Limiter, now time.Time) time.Duration {
	missing := 1 - l.TokensAt(now)
	if missing <= 0 {
		return 0
	}
	return max(time.Duration(missing/float64(l.Limit())*float64(time.Second)), time.Millisecond)
}

// forget removes tenants that have nothing to send and a full burst, as a new tenant has.
func (b *backlog) forget(now time.Time) {
	rested := func(t *tenant) bool {
		return len(t.entries) == 0 && t.limiter.TokensAt(now) >= float64(b.limits.burst)
	}
	if !slices.ContainsFunc(b.turns, rested) {
		return
	}
	turn := b.turns[b.next]
	b.turns = slices.DeleteFunc(b.turns, func(t *tenant) bool {
		gone := rested(t)
		if gone {
			delete(b.tenants, t.namespace)
		}
		return gone
	})
	b.next = max(slices.Index(b.turns, turn), 0)
}

// dropNamespace removes the entries of a namespace, and returns how many there were.
func (b *backlog) dropNamespace(namespace string) int {
	t, ok := b.tenants[namespace]
	if !ok {
		return 0
	}
	count := len(t.entries)
	for len(t.entries) > 0 {
		b.remove(t, len(t.entries)-1)
	}
	return count
}

// giveBack puts an entry that could not be sent first in its namespace again, unless it was
// recorded again meanwhile: then the newer entry counts for both. It returns false when the
// backlog is full.
func (b *backlog) giveBack(e *entry) bool {
	t := b.tenant(e.series.namespace)
	if newer, ok := t.bySeries[e.series]; ok {
		newer.count += e.count
		newer.first, newer.due, newer.tries = e.first, e.due, e.tries
		return true
	}
	if b.entries >= b.limits.entries || b.bytes+e.size() > b.limits.bytes || len(t.entries) >= b.limits.namespaceEntries {
		return false
	}
	t.entries, t.bySeries[e.series] = slices.Insert(t.entries, 0, e), e
	b.entries++
	b.resize(t, e.size())
	return true
}
