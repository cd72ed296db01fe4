package evaluation

import (
	"fmt"
	"strings"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/runtime/text"
)

const (
	// maxStrikes is the number of times that a user's module may use up its CPU time, memory or stack without a
	// verdict.
	maxStrikes = 3

	// strikeWindow is for how long one of them counts.
	strikeWindow = 10 * time.Minute
)

// strikes are the times at which a module gave no answer.
type strikes []time.Time

// add counts missing answers, and reports whether it is enough.
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

// liftRequest returns the value of the annotation that lifts a quarantine, cut to its bound.
func liftRequest(object *appsv1alpha1.PodTransitionRule) string {
	return text.Prefix(object.Annotations[appsv1alpha1.LiftQuarantineAnnotationKey], appsv1alpha1.MaxLiftBytes)
}

// maxWhyBytes bounds the reason in the message of a quarantine.
const maxWhyBytes = 200

// tooExpensive returns the message of a rule under quarantine, with the remedies. why is the message of the last evaluation.
func tooExpensive(why string) string {
	why = strings.TrimPrefix(why, opa.ErrTimeout.Error()+": ")
	return fmt.Sprintf("the module gave no answer %d times, the last time because %s, and is not evaluated any more: edit it, so that it needs less, "+
		"or set the annotation %s to a new value to try again", maxStrikes, text.Prefix(why, maxWhyBytes), appsv1alpha1.LiftQuarantineAnnotationKey)
}

// isUnderQuarantine reports whether the status of a rule has a quarantine of the present module.
// A quarantine survives a restart, since detecting it again costs time that other rules need.
func isUnderQuarantine(status *appsv1alpha1.RuleStatus, source string) bool {
	return status != nil && status.Quarantined != nil && status.Quarantined.Source == source
}
