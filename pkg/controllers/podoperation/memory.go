package podoperation

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/podoperation"
)

// memory is what a Reconciler keeps between rounds. It is safe for concurrent use.
type memory struct {
	mu         sync.Mutex // held while isFull reads the cache, so that no reading is older than a start
	operations map[types.NamespacedName]remembered

	// starts are the operations by namespace that this process starts, until the cache shows that they have started: workers that
	// read a cache that is behind would start more operations than may be in progress.
	starts map[string]sets.Set[types.UID]
}

// remembered is what is kept for one operation: when its status was last written, and the pods on which its action could
// not be carried out when it was last tried.
type remembered struct {
	reported time.Time
	blocked  map[types.UID]podoperation.Blocked
}

func newMemory() *memory {
	return &memory{operations: map[types.NamespacedName]remembered{}, starts: map[string]sets.Set[types.UID]{}}
}

// untilReport returns how soon the next write of a status is due.
func (m *memory) untilReport(operation types.NamespacedName, now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.operations[operation].reported.Add(statusPace).Sub(now)
}

func (m *memory) noteReport(operation types.NamespacedName, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	kept := m.operations[operation]
	kept.reported = now
	m.operations[operation] = kept
}

// noteBlocked records what a pod waits for; nothing when the message is empty.
func (m *memory) noteBlocked(operation types.NamespacedName, pod types.UID, message string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	kept := m.operations[operation]
	if message == "" {
		delete(kept.blocked, pod)
		return
	}
	if kept.blocked == nil {
		kept.blocked = map[types.UID]podoperation.Blocked{}
	}
	kept.blocked[pod] = podoperation.Blocked{Message: message, At: now}
	m.operations[operation] = kept
}

// blocked returns the pods of an operation that were blocked when they were last checked.
func (m *memory) blocked(operation types.NamespacedName) map[types.UID]podoperation.Blocked {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.operations[operation].blocked)
}

// unblock drops the blocked pods of an operation that has ended.
func (m *memory) unblock(operation types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if kept := m.operations[operation]; kept.blocked != nil {
		kept.blocked = nil
		m.operations[operation] = kept
	}
}

// forget drops what is kept for an operation that is gone.
func (m *memory) forget(operation types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.operations, operation)
}

// release ends the start of an operation that does not start now.
func (m *memory) release(operation *appsv1alpha1.PodOperation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.setStarts(operation.Namespace, m.starts[operation.Namespace].Clone().Delete(operation.UID))
}

// setStarts sets the starts in a namespace. The caller holds the lock.
func (m *memory) setStarts(namespace string, starts sets.Set[types.UID]) {
	if len(starts) == 0 {
		delete(m.starts, namespace)
		return
	}
	m.starts[namespace] = starts
}
