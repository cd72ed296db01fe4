package podtransitionrule

import (
	"slices"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

const (
	// maxStrikes is how often a user's module may miss its deadline.
	maxStrikes = 3

	// strikeWindow is for how long a miss counts. A machine that was busy once is not
	// held against a rule for ever.
	strikeWindow = 10 * time.Minute
)

// strikes are the times at which a rule missed its deadline.
type strikes []time.Time

// add counts missed deadlines, and reports whether it is enough.
func (s *strikes) add(missed int, now time.Time) bool {
	kept := (*s)[:0]
	for _, at := range *s {
		if now.Sub(at) < strikeWindow {
			kept = append(kept, at)
		}
	}
	for range min(missed, maxStrikes) {
		kept = append(kept, now)
	}
	*s = kept[max(0, len(kept)-maxStrikes):]
	return len(*s) >= maxStrikes
}

// quarantine stops a rule from being asked until it is edited.
func (p *preparedRule) quarantine(now time.Time) {
	p.quarantined = &appsv1alpha1.Quarantine{
		Since: statusTime(now), Source: p.program.Source(), Message: tooExpensive,
	}
}

// tooExpensive says what happened to a rule under quarantine, and the way out.
const tooExpensive = "the module missed its deadline 3 times and is not asked any more: edit it, so that it needs less time"

// quarantined are the names of the rules of an object that are not asked any more.
func (o *objectDecision) quarantined() []string {
	var names []string
	for _, said := range o.rules {
		if said.prepared.quarantined != nil {
			names = append(names, said.prepared.spec.Name)
		}
	}
	slices.Sort(names)
	return names
}

// isUnderQuarantine: status says that this very module was found too expensive. It
// survives a restart, since finding it out again costs time that other rules need.
func isUnderQuarantine(status *appsv1alpha1.RuleStatus, source string) bool {
	return status != nil && status.Quarantined != nil && status.Quarantined.Source == source
}
