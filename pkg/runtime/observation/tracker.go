// Package observation measures for how long this process has seen an object in a state.
//
// Times on objects come from other clocks, and any clock may be set. A wait that compares
// them with the time of day ends at once when the clock is set forward, and never when it is
// set back. A process measures its own observations with a monotonic clock. A new process
// has observed nothing: its waits begin again.
package observation

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// idle is the time for which an observation is kept without a further call of Observe.
// It is longer than any wait, so that only observations of deleted objects are lost.
const idle = time.Hour

// Tracker records since when objects are in their states. It is bounded by the objects
// that are observed within an hour and not forgotten. It is safe for concurrent use.
type Tracker struct {
	clock clock.PassiveClock

	mu     sync.Mutex
	seen   map[key]observed
	pruned time.Time
}

// key is one aspect of one object.
type key struct {
	object types.UID
	aspect string
}

type observed struct {
	state         string
	since, looked time.Time // with the reading of the monotonic clock
}

// NewTracker returns an empty Tracker. Its clock does not jump: the times contain a reading of a
// monotonic clock, as with clock.RealClock, or come from a steadyclock.Clock.
func NewTracker(clk clock.PassiveClock) *Tracker {
	return &Tracker{clock: clk, seen: map[key]observed{}, pruned: clk.Now()}
}

// Observe records that an aspect of an object is in a state, and returns for how long it has
// been observed in it: zero on the first call, or when the state differs from the state of the
// last call.
func (m *Tracker) Observe(object types.UID, aspect, state string) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.clock.Now()
	m.prune(now)
	at := key{object, aspect}
	last, ok := m.seen[at]
	if !ok || last.state != state {
		last = observed{state: state, since: now}
	}
	last.looked = now
	m.seen[at] = last
	return now.Sub(last.since)
}

// Restart begins the observation of an aspect again, in the same state. It has no effect on an aspect that is not observed.
func (m *Tracker) Restart(object types.UID, aspect string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if last, ok := m.seen[key{object, aspect}]; ok {
		last.since = m.clock.Now()
		m.seen[key{object, aspect}] = last
	}
}

// Forget drops the observation of an object's aspect that no longer waits, or is deleted.
func (m *Tracker) Forget(object types.UID, aspect string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.seen, key{object, aspect})
}

func (m *Tracker) prune(now time.Time) {
	if now.Sub(m.pruned) < idle {
		return
	}
	m.pruned = now
	for at, last := range m.seen {
		if now.Sub(last.looked) >= idle {
			delete(m.seen, at)
		}
	}
}
