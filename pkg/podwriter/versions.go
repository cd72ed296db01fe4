package podwriter

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// versions remembers the last noted resourceVersion of each pod for a time to live, which is the same in
// all calls. The zero value is empty. It is safe for concurrent use.
type versions struct {
	mu     sync.Mutex
	noted  map[types.UID]version
	pruned time.Time
}

type version struct {
	resourceVersion string
	at              time.Time
}

// note replaces the resourceVersion of a pod.
func (v *versions) note(pod metav1.Object, now time.Time, ttl time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.noted == nil {
		v.noted = map[types.UID]version{}
	}
	if now.Sub(v.pruned) >= ttl {
		v.pruned = now
		for uid, noted := range v.noted {
			if now.Sub(noted.at) >= ttl {
				delete(v.noted, uid)
			}
		}
	}
	v.noted[pod.GetUID()] = version{resourceVersion: pod.GetResourceVersion(), at: now}
}

// last returns the resourceVersion of a pod that was noted within ttl.
func (v *versions) last(uid types.UID, now time.Time, ttl time.Duration) (resourceVersion string, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	noted, ok := v.noted[uid]
	return noted.resourceVersion, ok && now.Sub(noted.at) < ttl
}
