package lifecycle

import (
	"slices"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// release ends every lifecycle of a pod that is no longer controlled. The gate opens even if
// it was never written: no other component opens it, and the pod would never become Ready.
func (m *machine) release() {
	before := len(m.labels)
	for key := range m.labels {
		if isPerLifecycle(key) {
			delete(m.labels, key)
		}
	}
	if len(m.labels) != before {
		m.transition(StepRelease, "", "")
	}
	m.setGate(true)
}

// enter takes the steps of one id that depend on nothing but its own labels: undo,
// cancel, finish, begin, and the repair of labels that contradict each other. It
// never moves an id forward because a label is missing.
func (m *machine) enter(id string) {
	operationType := m.get(appsv1alpha1.OperationTypeLabelPrefix, id)
	operating := m.has(appsv1alpha1.OperatingLabelPrefix, id)
	switch {
	case m.has(appsv1alpha1.UndoOperationTypeLabelPrefix, id):
		m.forget(id)
		m.transition(StepUndo, id, operationType)
	case operating && operationType == "":
		// Nothing can be decided without a type. Admission denies this state; if admission was
		// bypassed, the id waits for its type.
		m.clear(id)
	case operating && m.isWaiting(id):
		m.clear(id, appsv1alpha1.PreCheckLabelPrefix, appsv1alpha1.BeganLabelPrefix)
	case operating && m.isPermittedFor(id, operationType) && !m.isFinished(id):
		m.keepPermitted(id)
	case operating:
		m.begin(id, operationType)
	case m.isPermitted(id) && m.has(appsv1alpha1.OperateLabelPrefix, id):
		m.finish(id, operationType)
	case m.isFinished(id):
		m.keepFinished(id)
	case m.has(appsv1alpha1.UncheckedLabelPrefix, id):
		m.finish(id, m.get(appsv1alpha1.UncheckedLabelPrefix, id))
	default:
		m.forget(id)
		m.transition(StepCancel, id, operationType)
	}
}

// isPermittedFor reports whether the permit is for this type of operation. A permit and the
// permission of its type are written together, so a type without a permission was changed after the
// permit.
func (m *machine) isPermittedFor(id, operationType string) bool {
	return m.isPermitted(id) && m.has(appsv1alpha1.OperationPermissionLabelPrefix, operationType)
}

// begin starts a clean lifecycle: of an older lifecycle with the id only the pending
// PostCheck of the pod survives.
func (m *machine) begin(id, operationType string) {
	attempt := nextAttempt(m.labels, id, m.now)
	m.clear(id)
	m.set(appsv1alpha1.PreCheckLabelPrefix, id, attempt)
	if m.opts.RecordBegin {
		m.set(appsv1alpha1.BeganLabelPrefix, id, attempt)
	}
	m.transition(StepBegin, id, operationType)
}

// clear removes the labels that PodOps has written for an id, except labels with some prefixes, and
// keeps a pending PostCheck.
func (m *machine) clear(id string, but ...string) {
	operationType, owes := m.owesPostCheck(id)
	m.drop(id, without(ownedPrefixes(), but...)...)
	if owes {
		m.set(appsv1alpha1.UncheckedLabelPrefix, id, operationType)
	}
}

// owesPostCheck reports whether the id was allowed to operate and has passed no PostCheck rules
// since. Traffic must not reach the pod then: a controller that reverts a bad update begins again,
// and the pod is bad until the end of that operation. It returns the type of the operation.
func (m *machine) owesPostCheck(id string) (operationType string, owes bool) {
	switch {
	case m.has(appsv1alpha1.UncheckedLabelPrefix, id):
		return m.get(appsv1alpha1.UncheckedLabelPrefix, id), true
	case m.isFinished(id):
		return m.get(appsv1alpha1.DoneOperationTypeLabelPrefix, id), !m.isComplete(id)
	default:
		return m.get(appsv1alpha1.OperationTypeLabelPrefix, id), m.isPermitted(id) && m.has(appsv1alpha1.OperateLabelPrefix, id)
	}
}

// keepPermitted repairs a permitted id: exactly one of prepare and operate.
func (m *machine) keepPermitted(id string) {
	if m.has(appsv1alpha1.OperateLabelPrefix, id) {
		m.drop(id, appsv1alpha1.PrepareLabelPrefix, appsv1alpha1.PreparingLabelPrefix)
		return
	}
	since := m.either(appsv1alpha1.PrepareLabelPrefix, appsv1alpha1.PreparingLabelPrefix, id)
	if _, ok := ParseTime(since); !ok {
		since = stamp(m.now)
	}
	m.setPrepare(id, since)
}

func (m *machine) setPrepare(id, value string) {
	m.set(appsv1alpha1.PrepareLabelPrefix, id, value)
	m.set(appsv1alpha1.PreparingLabelPrefix, id, value)
}

// finish ends the operation of an id. The type moves to done-operation-type; operate
// and the permit are removed at once, so that an id that begins again is not already allowed.
func (m *machine) finish(id, operationType string) {
	operated := m.stampAfter(id)
	m.drop(id, without(ownedPrefixes(), appsv1alpha1.BeganLabelPrefix)...)
	m.drop(id, appsv1alpha1.OperationTypeLabelPrefix)
	m.set(appsv1alpha1.OperatedLabelPrefix, id, operated)
	if operationType != "" {
		m.set(appsv1alpha1.DoneOperationTypeLabelPrefix, id, operationType)
	}
	m.transition(StepFinish, id, operationType)
}

// keepFinished repairs a finished id: operated is present, and no label from before it.
func (m *machine) keepFinished(id string) {
	m.drop(id, without(ownedPrefixes(), append(finishedPrefixes(), appsv1alpha1.BeganLabelPrefix)...)...)
	m.drop(id, appsv1alpha1.OperationTypeLabelPrefix)
	if !m.has(appsv1alpha1.OperatedLabelPrefix, id) {
		m.set(appsv1alpha1.OperatedLabelPrefix, id, stamp(m.now))
	}
}

// forget removes every label of an id.
func (m *machine) forget(id string) {
	m.drop(id, clientPrefixes()...)
	m.drop(id, ownedPrefixes()...)
}

// nextAttempt returns the attempt of a lifecycle that begins now: the time, or later if the id
// carries the same or a later time (clocks of replicas differ). Two lifecycles of an id never
// share an attempt.
func nextAttempt(labels map[string]string, id string, now time.Time) string {
	if last := latest(labels, id); !now.After(last) {
		return stamp(last.Add(1))
	}
	return stamp(now)
}

// stampAfter returns the time now, or the latest time in a label of the id: where a label replaces
// an older label, the attempt of the id is kept.
func (m *machine) stampAfter(id string) string {
	if last := latest(m.labels, id); last.After(m.now) {
		return stamp(last)
	}
	return stamp(m.now)
}

// latest returns the latest time on the owned labels of an id; zero without such labels.
func latest(labels map[string]string, id string) time.Time {
	var last time.Time
	for _, prefix := range without(ownedPrefixes(), appsv1alpha1.DoneOperationTypeLabelPrefix, appsv1alpha1.UncheckedLabelPrefix) {
		value, _ := labelValue(labels, prefix, id)
		if at, ok := ParseTime(value); ok && at.After(last) {
			last = at
		}
	}
	return last
}

func without(all []string, some ...string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(some, s) })
}
