package resourceconsist

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// attempt names what was tried for one item.
type attempt struct {
	verb string
	id   string
}

// failure is an item that failed, and when it is tried again. Items are tried one by one
// from then on, so that one of them cannot spoil a batch again and again.
type failure struct {
	name  string
	err   error
	times int
	next  time.Time
}

// memory is what is known of one employer between two reconciles. Losing it costs
// repeated calls and events, no more. One worker uses it at a time.
type history struct {
	failures map[attempt]failure

	// polls in a row for the same pods.
	polls  int
	polled string

	// told is the last text of each event reason.
	told map[string]string

	// shown are the employees that have a metric.
	shown []string
}

// memories hold one memory for each employer. They are safe for concurrent use.
type histories struct {
	mu  sync.Mutex
	all map[types.NamespacedName]*history
}

func (m *histories) of(employer types.NamespacedName) *history {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil {
		m.all = map[types.NamespacedName]*history{}
	}
	if m.all[employer] == nil {
		m.all[employer] = &history{failures: map[attempt]failure{}, told: map[string]string{}}
	}
	return m.all[employer]
}

func (m *histories) forget(employer types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, employer)
}

func (m *history) failed(a attempt, name string, err error, now time.Time) {
	f := m.failures[a]
	m.failures[a] = failure{name: name, err: err, times: f.times + 1, next: now.Add(backoff(f.times, firstRetry, lastRetry))}
}

// blames reports whether something failed for an employee: it has its own time to be
// tried again.
func (m *history) blames(name string) bool {
	for _, f := range m.failures {
		if f.name == name {
			return true
		}
	}
	return false
}

// keep forgets failures of attempts that nobody makes any more.
func (m *history) keep(attempts map[attempt]bool) {
	maps.DeleteFunc(m.failures, func(a attempt, _ failure) bool { return !attempts[a] })
}

// retryAfter is when the first failed item is tried again; zero when there is none. One
// that is due and was not tried waits for something else.
func (m *history) retryAfter(now time.Time) time.Duration {
	var first time.Duration
	for _, f := range m.failures {
		if f.next.After(now) {
			first = minDelay(first, f.next.Sub(now))
		}
	}
	return first
}

// poll is how many times the provider was asked about just these pods.
func (m *history) poll(waiting []string) int {
	if key := strings.Join(waiting, ","); key != m.polled {
		m.polls, m.polled = 0, key
	}
	m.polls++
	return m.polls - 1
}

// news reports whether an event says anything else than the last one of its reason.
func (m *history) news(reason, text string) bool {
	if m.told[reason] == text {
		return false
	}
	m.told[reason] = text
	return true
}

// sorted are the attempts that failed, by id.
func (m *history) sorted() []attempt {
	return slices.SortedFunc(maps.Keys(m.failures), func(a, b attempt) int {
		return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.verb, b.verb))
	})
}
