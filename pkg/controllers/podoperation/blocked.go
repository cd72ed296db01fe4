package podoperation

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/pkg/core/podoperation"
)

// blocked are the pods on which the actions of operations in progress could not be carried out yet. It is safe for
// concurrent use.
type blocked struct {
	mu          sync.Mutex
	byOperation map[types.NamespacedName]map[types.UID]podoperation.Blocked
}

// note records what a pod waits for; nothing when the message is empty.
func (b *blocked) note(operation types.NamespacedName, pod types.UID, message string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if message == "" {
		delete(b.byOperation[operation], pod)
		return
	}
	if b.byOperation[operation] == nil {
		b.byOperation[operation] = map[types.UID]podoperation.Blocked{}
	}
	b.byOperation[operation][pod] = podoperation.Blocked{Message: message, At: now}
}

// list returns the pods of an operation that were blocked when they were last checked.
func (b *blocked) list(operation types.NamespacedName) map[types.UID]podoperation.Blocked {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.byOperation[operation])
}

func (b *blocked) forget(operation types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.byOperation, operation)
}
