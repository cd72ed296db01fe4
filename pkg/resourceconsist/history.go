package resourceconsist

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/pkg/runtime/backoff"
)

// attempt identifies one verb for one item.
type attempt struct {
	verb string
	id   string
}

// failure is an item that failed, and when it is retried.
type failure struct {
	name  string
	err   error
	times int
	next  time.Time

	// batch is the number of items that the next call with the item may have.
	batch int

	// withAll is true if no call succeeded for any item.
	withAll bool
}

// history is the state of one employer between two reconciles. Losing it only costs
// repeated calls and events. One worker uses it at a time.
type history struct {
	failures map[attempt]failure

	// polls counts the reads in a row that waited for the same pods.
	polls  int
	polled string

	// lastEvents holds the last text of each event reason.
	lastEvents map[string]string

	// shown holds the employees that have a metric.
	shown []string
}

// histories hold one history for each employer. They are safe for concurrent use.
type histories struct {
	mu  sync.Mutex
	all map[types.NamespacedName]*history
}

func (m *histories) history(employer types.NamespacedName) *history {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil {
		m.all = map[types.NamespacedName]*history{}
	}
	if m.all[employer] == nil {
		m.all[employer] = &history{failures: map[attempt]failure{}, lastEvents: map[string]string{}}
	}
	return m.all[employer]
}

func (m *histories) forget(employer types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, employer)
}

// failed records one more failure of an attempt.
func (m *history) failed(a attempt, f failure, now time.Time) {
	before := m.failures[a].times
	f.times, f.next = before+1, now.Add(backoff.Delay(firstRetry, before, lastRetry))
	m.failures[a] = f
}

// hasFailed reports whether a verb failed for an employee, which is then retried at its own
// time.
func (m *history) hasFailed(name string) bool {
	for _, f := range m.failures {
		if f.name == name {
			return true
		}
	}
	return false
}

// keep removes the failures of attempts that are not in attempts.
func (m *history) keep(attempts map[attempt]bool) {
	maps.DeleteFunc(m.failures, func(a attempt, _ failure) bool { return !attempts[a] })
}

// retryAfter returns the time until the first failed item is retried; zero without a
// failed item. It leaves out an item that is due and was not tried: that item waits for
// something else.
func (m *history) retryAfter(now time.Time) time.Duration {
	var first time.Duration
	for _, f := range m.failures {
		if f.next.After(now) {
			first = backoff.MinDelay(first, f.next.Sub(now))
		}
	}
	return first
}

// poll returns how many times in a row the provider was read for exactly these pods.
func (m *history) poll(waiting []string) int {
	if key := strings.Join(waiting, ","); key != m.polled {
		m.polls, m.polled = 0, key
	}
	m.polls++
	return m.polls - 1
}

// isNewEvent reports whether the text of an event differs from the last event with its reason.
func (m *history) isNewEvent(reason, text string) bool {
	if m.lastEvents[reason] == text {
		return false
	}
	m.lastEvents[reason] = text
	return true
}

// sorted returns the attempts that failed, by id.
func (m *history) sorted() []attempt {
	return slices.SortedFunc(maps.Keys(m.failures), func(a, b attempt) int {
		return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.verb, b.verb))
	})
}
