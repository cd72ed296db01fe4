package podwriter

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// StaleFor is the time for which a resourceVersion counts as stale after a conflict. A watch that
// is behind by more costs another conflict. It is shorter than all delays after a conflict, so
// that a pod without a watch event is retried.
const StaleFor = 500 * time.Millisecond

// Versions remembers the last noted resourceVersion of each pod for a time to live. It is the memory
// of all writers of pods for facts that a cache may not show yet: their own writes, their deletes,
// and the versions with which a write had a conflict. It is safe for concurrent use.
type Versions struct {
	ttl time.Duration

	mu     sync.Mutex
	noted  map[types.UID]version
	pruned time.Time
}

type version struct {
	resourceVersion string
	at              time.Time
}

// NewVersions returns empty Versions.
func NewVersions(ttl time.Duration) *Versions {
	return &Versions{ttl: ttl, noted: map[types.UID]version{}}
}

// Note replaces the resourceVersion of a pod.
func (v *Versions) Note(pod metav1.Object, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if now.Sub(v.pruned) >= v.ttl {
		v.pruned = now
		for uid, noted := range v.noted {
			if now.Sub(noted.at) >= v.ttl {
				delete(v.noted, uid)
			}
		}
	}
	v.noted[pod.GetUID()] = version{resourceVersion: pod.GetResourceVersion(), at: now}
}

// Has reports whether this very version of a pod was noted last.
func (v *Versions) Has(pod metav1.Object, now time.Time) bool {
	noted, ok := v.last(pod.GetUID(), now)
	return ok && noted == pod.GetResourceVersion()
}

// HasAny reports whether any version of a pod was noted.
func (v *Versions) HasAny(uid types.UID, now time.Time) bool {
	_, ok := v.last(uid, now)
	return ok
}

// HasLater reports whether a later version of a pod was noted: the cache that the pod is from has yet
// to show it.
func (v *Versions) HasLater(pod metav1.Object, now time.Time) bool {
	noted, ok := v.last(pod.GetUID(), now)
	if !ok {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(pod.GetResourceVersion(), noted)
	return err == nil && order < 0
}

func (v *Versions) last(uid types.UID, now time.Time) (resourceVersion string, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	noted, ok := v.noted[uid]
	return noted.resourceVersion, ok && now.Sub(noted.at) < v.ttl
}
