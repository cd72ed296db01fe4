package podtransitionrule

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/pkg/podindex"
)

// missingFor is how long a pod counts as desired that a workload had when its last permit
// was given, and has not made again. A workload that takes longer is taken to want fewer.
const missingFor = 2 * time.Minute

// missing is how many pods a workload misses, and since when it misses so many.
type missing struct {
	pods  int
	since time.Time
}

// countMissing adds to the desired number of each rule the pods that workloads miss which
// PodOps does not know the desired number of: without them each pod that is deleted would
// lower the bound for the next one. The time is measured by this process, from when it saw
// them missing. It returns how soon the first of them no longer counts.
func (r *Reconciler) countMissing(view podindex.Snapshot) (wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	for i := range view.Rules {
		rule := &view.Rules[i]
		key := keyOf(rule.Object)
		before, after := r.missing[key], map[types.UID]missing{}
		for uid, pods := range rule.Remembered {
			gone := pods - rule.Owners[uid]
			if gone <= 0 {
				continue
			}
			last, known := before[uid]
			if !known || gone > last.pods {
				last.since = now
			}
			last.pods = gone
			after[uid] = last
			if left := missingFor - now.Sub(last.since); left > 0 {
				rule.Counts.Desired += gone
				wait = minDelay(wait, left)
				continue
			}
			delete(rule.Remembered, uid)
		}
		r.missing[key] = after
		if len(after) == 0 {
			delete(r.missing, key)
		}
	}
	return wait
}
