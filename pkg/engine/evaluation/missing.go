package evaluation

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/podops-dev/podops/pkg/runtime/backoff"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"k8s.io/apimachinery/pkg/types"
)

// MissingFor is the time for which a missing pod counts as desired: a pod that a workload had when its
// last permit was given, and has not created again. A workload that takes longer is assumed to have been
// scaled in.
const MissingFor = 2 * time.Minute

// UnreadableFor takes the place of MissingFor while the numbers of the workload cannot be read, because of
// missing rights, an API that was removed or a service that does not respond. A workload that has no pod at
// all is not read, and MissingFor applies.
const UnreadableFor = 10 * time.Minute

// countMissing returns the views with the pods added to their desired numbers that workloads miss and whose
// desired number PodOps does not know: without them each pod that is deleted would lower the bound for the
// next pod. The time is measured by this process, from the round in which it first saw them missing. It
// returns how soon the first of them no longer counts; 0 for never.
func (s *State) countMissing(views []podindex.RuleView, now time.Time) (counted []podindex.RuleView, wait time.Duration) {
	counted = slices.Clone(views)
	for i := range counted {
		view, ruleset := &counted[i], s.ruleset(counted[i].Object.Name)
		var after map[types.UID]missing
		bounds := map[types.UID]time.Duration{}
		for _, owner := range view.Unreadable {
			bounds[owner.UID] = UnreadableFor
		}
		for uid, pods := range view.Remembered {
			gone := pods - view.Owners[uid]
			if gone <= 0 {
				continue
			}
			last, known := ruleset.missing[uid]
			if !known || gone > last.pods {
				last.since = now
			}
			last.pods = gone
			if after == nil {
				after, view.Remembered = map[types.UID]missing{}, maps.Clone(view.Remembered)
			}
			after[uid] = last
			if left := cmp.Or(bounds[uid], MissingFor) - now.Sub(last.since); left > 0 {
				view.Counts.Desired += gone
				wait = backoff.MinDelay(wait, left)
				continue
			}
			delete(view.Remembered, uid)
		}
		ruleset.missing = after
	}
	return counted, wait
}
