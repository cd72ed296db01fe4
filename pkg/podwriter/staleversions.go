package podwriter

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// MovedOnFor is how long a pod counts as moved on after a conflict. A watch that is behind
// by more costs another conflict. It is shorter than any time after which a conflict is
// looked at again, so that a pod whose watch brings nothing is tried once more.
const MovedOnFor = 500 * time.Millisecond

// StaleVersions remembers pods that had moved on when they were written to. News of other pods
// leads to the same decision again while the watch is behind, and each would cost a request
// that is bound to fail. The zero value is empty. It is safe for concurrent use.
type StaleVersions struct {
	mu     sync.Mutex
	at     map[types.UID]write
	pruned time.Time
}

// Note that the API server had a conflict with the pod at its resourceVersion.
func (m *StaleVersions) Note(pod *corev1.Pod, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.at == nil {
		m.at = map[types.UID]write{}
	}
	if now.Sub(m.pruned) >= MovedOnFor {
		m.pruned = now
		for uid, noted := range m.at {
			if now.Sub(noted.at) >= MovedOnFor {
				delete(m.at, uid)
			}
		}
	}
	m.at[pod.UID] = write{resourceVersion: pod.ResourceVersion, at: now}
}

// Has says whether a request about the pod at its resourceVersion is bound to fail.
func (m *StaleVersions) Has(pod *corev1.Pod, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	noted, ok := m.at[pod.UID]
	return ok && noted.resourceVersion == pod.ResourceVersion && now.Sub(noted.at) < MovedOnFor
}
