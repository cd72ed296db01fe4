package podwriter

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// StaleFor is how long a resourceVersion counts as stale after a conflict. A watch that is behind
// by more costs another conflict. It is shorter than all delays after a conflict, so that a pod
// without a watch event is retried.
const StaleFor = 500 * time.Millisecond

// StaleVersions remembers (pod, resourceVersion) pairs that returned a conflict. Until the watch
// delivers a newer version, another event would repeat the same decision and the same conflict.
// The zero value is empty. It is safe for concurrent use.
type StaleVersions struct {
	mu     sync.Mutex
	at     map[types.UID]write
	pruned time.Time
}

// Note records a conflict with the pod at its resourceVersion.
func (m *StaleVersions) Note(pod *corev1.Pod, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.at == nil {
		m.at = map[types.UID]write{}
	}
	if now.Sub(m.pruned) >= StaleFor {
		m.pruned = now
		for uid, noted := range m.at {
			if now.Sub(noted.at) >= StaleFor {
				delete(m.at, uid)
			}
		}
	}
	m.at[pod.UID] = write{resourceVersion: pod.ResourceVersion, at: now}
}

// Has reports whether a write to the pod at its resourceVersion would fail with a conflict.
func (m *StaleVersions) Has(pod *corev1.Pod, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	noted, ok := m.at[pod.UID]
	return ok && noted.resourceVersion == pod.ResourceVersion && now.Sub(noted.at) < StaleFor
}
