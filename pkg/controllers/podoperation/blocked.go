package podoperation

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/pkg/podoperation"
)

// blocked are the pods on which the actions of operations in progress cannot be carried out yet. It is safe for
// concurrent use.
type blocked struct {
	mu          sync.Mutex
	byOperation map[types.NamespacedName]map[types.UID]blockedPod
}

type blockedPod struct {
	message string
	at      time.Time
}

// note records what a pod waits for.
func (b *blocked) note(operation types.NamespacedName, pod types.UID, message string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byOperation[operation] == nil {
		b.byOperation[operation] = map[types.UID]blockedPod{}
	}
	b.byOperation[operation][pod] = blockedPod{message, now}
}

// fresh returns the pods that were checked within podoperation.BlockedDelay. It forgets the others: they are checked again.
func (b *blocked) fresh(operation types.NamespacedName, now time.Time) map[types.UID]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	pods := map[types.UID]string{}
	for uid, pod := range b.byOperation[operation] {
		if now.Sub(pod.at) >= podoperation.BlockedDelay {
			delete(b.byOperation[operation], uid)
			continue
		}
		pods[uid] = pod.message
	}
	if len(pods) == 0 {
		delete(b.byOperation, operation)
	}
	return pods
}

func (b *blocked) forget(operation types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.byOperation, operation)
}
