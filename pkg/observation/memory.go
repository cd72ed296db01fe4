// Package observation measures for how long this process has seen an object in a state.
//
// Times on objects come from other clocks, and any clock may be set. A wait that compares
// them with the time of day ends at once when the clock is set forward, and never when it is
// set back. What a process has observed itself it measures with a monotonic clock. A process
// that starts has observed nothing: its waits begin again.
package observation

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// idle is how long an observation is kept that is not looked at. It is longer than any
// wait, so that only observations of objects that are gone are lost.
const idle = time.Hour

// Memory remembers since when objects are in their states. It is bounded by the objects
// that are looked at within an hour and are not forgotten. It is safe for concurrent use.
type Memory struct {
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

// NewMemory returns an empty Memory. Its clock does not jump: the times carry a reading of a
// monotonic clock, as those of clock.RealClock do, or they are those of a steadyclock.Clock.
func NewMemory(clk clock.PassiveClock) *Memory {
	return &Memory{clock: clk, seen: map[key]observed{}, pruned: clk.Now()}
}

// Observe notes that an aspect of an object is in a state, and returns for how long it has
// been observed so: zero when this is the first look, or when the state is another one than
// at the last look.
func (m *Memory) Observe(object types.UID, aspect, state string) time.Duration {
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

// Forget drops what was observed of an aspect of an object: it is at rest, or gone.
func (m *Memory) Forget(object types.UID, aspect string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.seen, key{object, aspect})
}

func (m *Memory) prune(now time.Time) {
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
