package lifecycle

import (
	"slices"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// create begins the lifecycle of a new pod as if an operation were over: PostCheck rules decide when the gate opens
// for the first time. It comes with the first write of the gate, and so never again.
func (m *machine) create() {
	if m.opts.LabelsOnly || !m.facts.HasCreateRules || m.facts.Gate != GateUnset || !m.writesUnsetGate() {
		return
	}
	m.set(appsv1alpha1.OperatedLabelPrefix, appsv1alpha1.PodCreateID, stamp(m.now))
	m.set(appsv1alpha1.DoneOperationTypeLabelPrefix, appsv1alpha1.PodCreateID, appsv1alpha1.CreateOperationType)
}

// postCheck requests the PostCheck rules of a finished id, and applies their permit, while
// no other id is permitted: until then the pod is not in its final state. A new pod has to run first.
func (m *machine) postCheck(id string, permits map[string]string) {
	if !m.isFinished(id) || m.busy() {
		return
	}
	if id == appsv1alpha1.PodCreateID && !m.runs() {
		return
	}
	done := m.get(appsv1alpha1.DoneOperationTypeLabelPrefix, id)
	if !m.has(appsv1alpha1.PostCheckedLabelPrefix, id) && !m.has(appsv1alpha1.PostCheckLabelPrefix, id) {
		m.set(appsv1alpha1.PostCheckLabelPrefix, id, m.stampAfter(id))
		m.transition(StepPostCheck, id, done)
	}
	attempt, passed := permits[id]
	if passed && m.has(appsv1alpha1.PostCheckLabelPrefix, id) && m.get(appsv1alpha1.PostCheckLabelPrefix, id) == attempt {
		m.set(appsv1alpha1.PostCheckedLabelPrefix, id, m.stampAfter(id))
		m.drop(id, appsv1alpha1.PostCheckLabelPrefix)
		m.transition(StepPostPermit, id, done)
	}
}

// syncComplete requests traffic from service controllers, under both names of the label, as
// soon as neither an id that has not passed its PostCheck nor the user keeps the pod offline.
func (m *machine) syncComplete() {
	online := !m.unfinished() && !m.stayOffline()
	for _, id := range m.ids() {
		if !online || !m.isComplete(id) {
			m.drop(id, appsv1alpha1.CompleteLabelPrefix, appsv1alpha1.CompletingLabelPrefix)
			continue
		}
		since := m.either(appsv1alpha1.CompleteLabelPrefix, appsv1alpha1.CompletingLabelPrefix, id)
		if _, ok := ParseTime(since); !ok {
			since = stamp(m.now)
		}
		m.set(appsv1alpha1.CompleteLabelPrefix, id, since)
		m.set(appsv1alpha1.CompletingLabelPrefix, id, since)
	}
}

// fit reports whether the pod may serve as soon as this change is written. With the gate open,
// a pod that only gates kept unready counts as Ready: the kubelet reports it next, or is late.
func (m *machine) fit() bool {
	switch {
	case !m.gateOpen():
		return false
	case m.facts.Ready:
		return true
	case m.facts.Gate == GateMissing || !m.facts.GatesOnly:
		return false
	default:
		return m.out.Gate != nil || !m.isLate()
	}
}

// serves reports whether the pod is available already, with no lifecycle to complete. A newly
// expected finalizer does not make it unavailable: a new employer needs time to put its traffic
// on, and the pod serves its other employers.
func (m *machine) serves() bool {
	return hasKey(m.labels, appsv1alpha1.ServiceAvailableLabelKey) && !slices.ContainsFunc(m.ids(), m.isFinished)
}

// forgetGone drops from the annotation the employers that no longer exist or select the pod and
// whose finalizer is not on the pod.
func (m *machine) forgetGone() {
	if m.opts.LabelsOnly {
		return
	}
	for _, employer := range m.facts.Missing() {
		if slices.Contains(m.facts.Gone, employer) {
			m.out.Forget = append(m.out.Forget, employer)
		}
	}
}

// syncAvailable sets or removes service-available, and cleans up complete ids with it.
func (m *machine) syncAvailable() {
	may := m.fit() && !m.unfinished() && !m.stayOffline() && m.facts.ExpectedFinalizersErr == nil
	if !may || !m.serves() && !m.facts.complete() {
		delete(m.labels, appsv1alpha1.ServiceAvailableLabelKey)
		return
	}
	for _, id := range m.ids() {
		if m.isFinished(id) {
			m.forget(id)
		}
	}
	delete(m.labels, appsv1alpha1.CreatingLabelKey)
	delete(m.labels, appsv1alpha1.RecreatingLabelKey)
	if !hasKey(m.labels, appsv1alpha1.ServiceAvailableLabelKey) {
		m.labels[appsv1alpha1.ServiceAvailableLabelKey] = stamp(m.now)
		m.transition(StepAvailable, "", "")
	}
}
