package lifecycle

import (
	"maps"
	"slices"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// Waiting is one id that waits for the rules of a stage.
type Waiting struct {
	ID    string
	Type  string
	Stage appsv1alpha1.TransitionStage

	// Attempt must be named by a permit.
	Attempt string
}

// WaitingIDs returns the ids of a pod that wait for rules, sorted by id. Nothing waits on a pod
// that is terminating or not controlled. An id that is finished while another id is permitted does
// not wait yet.
func WaitingIDs(p PodFacts) []Waiting {
	if p.Terminating || !p.Controlled() {
		return nil
	}
	m := machine{labels: p.Labels} // which reads labels only
	var waiting []Waiting
	for _, id := range operationIDs(p.Labels) {
		operating := m.has(appsv1alpha1.OperatingLabelPrefix, id)
		operationType := m.get(appsv1alpha1.OperationTypeLabelPrefix, id)
		switch {
		case operating && m.isWaiting(id) && operationType != "":
			waiting = append(waiting, Waiting{id, operationType, appsv1alpha1.StagePreCheck, m.get(appsv1alpha1.PreCheckLabelPrefix, id)})
		case !operating && m.isFinished(id) && m.has(appsv1alpha1.PostCheckLabelPrefix, id) && !m.busy():
			done := m.get(appsv1alpha1.DoneOperationTypeLabelPrefix, id)
			waiting = append(waiting, Waiting{id, done, appsv1alpha1.StagePostCheck, m.get(appsv1alpha1.PostCheckLabelPrefix, id)})
		}
	}
	return waiting
}

// UntypedIDs returns the ids that are operating without a type, sorted. Admission denies
// them; an id that bypassed admission waits for its type.
func UntypedIDs(p PodFacts) []string {
	var untyped []string
	for _, id := range operationIDs(p.Labels) {
		operationType, _ := labelValue(p.Labels, appsv1alpha1.OperationTypeLabelPrefix, id)
		if operationType == "" && hasLabel(p.Labels, appsv1alpha1.OperatingLabelPrefix, id) {
			untyped = append(untyped, id)
		}
	}
	return untyped
}

// Renew returns the change that gives every waiting PreCheck id of a pod a new attempt. Permits for
// the old attempt are void then, and so is every write under the pod's present resourceVersion.
func Renew(p PodFacts, now time.Time) Change {
	labels := maps.Clone(p.Labels)
	for _, waiting := range WaitingIDs(p) {
		if waiting.Stage == appsv1alpha1.StagePreCheck {
			labels[label(appsv1alpha1.PreCheckLabelPrefix, waiting.ID)] = nextAttempt(p.Labels, waiting.ID, now)
		}
	}
	var change Change
	change.diff(p.Labels, labels)
	return change
}

// MayOperate reports whether an id holds operate, or gets it with the next Advance. When
// only time is missing it returns how long to wait.
func MayOperate(p PodFacts, id string, opts Options, now time.Time) (may bool, wake time.Duration) {
	change := Advance(p, Permits{}, opts, now)
	_, may = change.Apply(p.Labels)[label(appsv1alpha1.OperateLabelPrefix, id)]
	return may, change.Wake
}

// OnlyOperates reports whether a change does nothing but grant operate to one id.
func (c Change) OnlyOperates(id string) bool {
	_, grants := c.Set[label(appsv1alpha1.OperateLabelPrefix, id)]
	if !grants || len(c.Set) != 1 || len(c.Forget) > 0 || c.changesStatus() {
		return false
	}
	return !slices.ContainsFunc(c.Remove, func(key string) bool {
		return key != label(appsv1alpha1.PrepareLabelPrefix, id) && key != label(appsv1alpha1.PreparingLabelPrefix, id)
	})
}
