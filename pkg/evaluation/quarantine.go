package evaluation

import (
	"slices"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/text"
)

const (
	// maxStrikes is the number of times that a user's module may use up its CPU time without a
	// verdict.
	maxStrikes = 3

	// strikeWindow is for how long one of them counts.
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

// strike counts missed deadlines of a rule, and puts it under quarantine if there are too many. It reports
// whether it has done so.
func (p *preparedRule) strike(object *appsv1alpha1.PodTransitionRule, missed int, now time.Time) bool {
	if p.quarantined != nil || !p.strikes.add(missed, now) {
		return false
	}
	p.quarantine(object, now)
	return true
}

// quarantine stops the evaluation of a rule until it is edited, or the quarantine is lifted.
func (p *preparedRule) quarantine(object *appsv1alpha1.PodTransitionRule, now time.Time) {
	p.quarantined = &appsv1alpha1.Quarantine{
		Since: StatusTime(now), Source: p.program.Source(), Message: TooExpensive, Lift: liftOf(object),
	}
}

// lift ends the quarantine of a rule if the annotation of its object has another value than when
// it began. Each value ends it once.
func (p *preparedRule) lift(object *appsv1alpha1.PodTransitionRule) {
	value := liftOf(object)
	if p.quarantined == nil || value == "" || value == p.quarantined.Lift {
		return
	}
	p.quarantined, p.strikes = nil, nil
}

// liftOf returns the value of the annotation that lifts a quarantine, cut to its bound.
func liftOf(object *appsv1alpha1.PodTransitionRule) string {
	return text.Prefix(object.Annotations[appsv1alpha1.LiftQuarantineAnnotationKey], appsv1alpha1.MaxLiftBytes)
}

// TooExpensive is the message of a rule under quarantine, with the remedies.
const TooExpensive = "the module used up its CPU time 3 times without an answer and is not evaluated any more: edit it, so that it needs less, " +
	"or set the annotation " + appsv1alpha1.LiftQuarantineAnnotationKey + " to a new value to try again"

// Quarantined returns the names of the rules under quarantine.
func (r *Ruleset) Quarantined() []string {
	var names []string
	for _, eval := range r.Rules {
		if eval.prepared.quarantined != nil {
			names = append(names, eval.prepared.spec.Name)
		}
	}
	slices.Sort(names)
	return names
}

// isUnderQuarantine reports whether the status of a rule has a quarantine of the present module.
// A quarantine survives a restart, since detecting it again costs time that other rules need.
func isUnderQuarantine(status *appsv1alpha1.RuleStatus, source string) bool {
	return status != nil && status.Quarantined != nil && status.Quarantined.Source == source
}
