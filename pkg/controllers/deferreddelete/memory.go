package deferreddelete

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// memory notes when something happened to a pod.
type memory struct {
	mu *sync.Mutex
	at map[types.UID]time.Time
}

func newMemory() memory { return memory{mu: &sync.Mutex{}, at: map[types.UID]time.Time{}} }

func (m memory) note(uid types.UID, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at[uid] = now
}

// age is how long ago it happened, at least 1 ns; 0 when it did not.
func (m memory) age(uid types.UID, now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, ok := m.at[uid]
	if !ok {
		return 0
	}
	return max(1, now.Sub(at))
}

func (m memory) forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.at, uid)
}

// prune drops what is older than a duration: pods that are gone are never asked about
// again.
func (m memory) prune(now time.Time, older time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid, at := range m.at {
		if now.Sub(at) > older {
			delete(m.at, uid)
		}
	}
}
