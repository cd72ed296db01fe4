package deferreddelete

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// history records when something happened to a pod.
type history struct {
	mu *sync.Mutex
	at map[types.UID]time.Time
}

func newHistory() history { return history{mu: &sync.Mutex{}, at: map[types.UID]time.Time{}} }

func (m history) note(uid types.UID, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at[uid] = now
}

// age returns how long ago it happened, at least 1 ns; 0 when it did not.
func (m history) age(uid types.UID, now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, ok := m.at[uid]
	if !ok {
		return 0
	}
	return max(1, now.Sub(at))
}

func (m history) forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.at, uid)
}

// prune drops entries that are older than a duration: deleted pods are never looked up again.
func (m history) prune(now time.Time, older time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid, at := range m.at {
		if now.Sub(at) > older {
			delete(m.at, uid)
		}
	}
}
