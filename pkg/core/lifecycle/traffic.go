package lifecycle

import (
	"cmp"
	"strings"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// permit gives a waiting id its permit, if permits has a permit for the attempt of the id.
func (m *machine) permit(id string, permits map[string]string) {
	attempt, passed := permits[id]
	operationType := m.get(appsv1alpha1.OperationTypeLabelPrefix, id)
	if !passed || !m.isWaiting(id) || m.get(appsv1alpha1.PreCheckLabelPrefix, id) != attempt || operationType == "" {
		return
	}
	m.set(appsv1alpha1.PreCheckedLabelPrefix, id, m.stampAfter(id))
	m.drop(id, appsv1alpha1.PreCheckLabelPrefix)
	m.setPrepare(id, stamp(m.now))
	m.transition(StepPermit, id, operationType)
}

// operate lets the operation start, once traffic is off.
func (m *machine) operate(id string) {
	if !m.isPermitted(id) || !m.has(appsv1alpha1.PrepareLabelPrefix, id) || !m.trafficIsOff() || !m.drained() {
		return
	}
	m.drop(id, appsv1alpha1.PrepareLabelPrefix, appsv1alpha1.PreparingLabelPrefix)
	m.set(appsv1alpha1.OperateLabelPrefix, id, stamp(m.now))
	m.transition(StepOperate, id, m.get(appsv1alpha1.OperationTypeLabelPrefix, id))
}

// trafficIsOff reports whether no protection finalizer is left, the gate is False, and the pod
// was seen unready (or the kubelet was late), for the settle time. The gate must be False already:
// no component has seen a gate that this very change sets.
func (m *machine) trafficIsOff() bool {
	if m.facts.Protected() {
		return false
	}
	switch m.facts.Gate {
	case GateMissing:
		return true
	case GateFalse:
	default:
		return false
	}
	if m.facts.Ready {
		m.out.WaitsForKubelet = true
		return m.isLate() && m.opts.Continues(m.facts)
	}
	settle := m.settleTime()
	return settle == 0 && len(m.facts.ExpectedFinalizers()) > 0 || m.elapsed(settle)
}

// drained reports whether no connection is left on a pod whose traffic is off, as far as the pod has an endpoint that
// confirms it. An answer from before would not count: clients could still connect.
func (m *machine) drained() bool {
	if m.facts.DrainEndpoint.Port == 0 || m.facts.Drained {
		return true
	}
	m.out.WaitsForDrain = true
	m.wakeIn(cmp.Or(m.facts.DrainCheck, time.Second))
	return false
}

// syncPermissions keeps operation-permission/<type> exactly for the types of the
// permitted ids.
func (m *machine) syncPermissions() {
	permitted := map[string]string{}
	for _, id := range m.ids() {
		operationType := m.get(appsv1alpha1.OperationTypeLabelPrefix, id)
		if m.isPermitted(id) && operationType != "" {
			permitted[operationType] = m.get(appsv1alpha1.PreCheckedLabelPrefix, id)
		}
	}
	for key := range m.labels {
		operationType, isPermission := strings.CutPrefix(key, appsv1alpha1.OperationPermissionLabelPrefix+"/")
		if isPermission && !hasKey(permitted, operationType) {
			delete(m.labels, key)
		}
	}
	for operationType, value := range permitted {
		if !m.has(appsv1alpha1.OperationPermissionLabelPrefix, operationType) {
			m.set(appsv1alpha1.OperationPermissionLabelPrefix, operationType, value)
		}
	}
}

// syncGate sets the gate False while the pod must be offline, and True otherwise. A gate that
// was never written waits until the containers are ready: it has no effect earlier, and this way
// gate and service-available are written together.
func (m *machine) syncGate() {
	switch {
	case m.facts.Gate == GateMissing:
	case m.unfinished() || m.stayOffline():
		m.setGate(false)
	case m.facts.Gate == GateFalse:
		m.setGate(true)
	case m.facts.Gate == GateUnset && m.runs():
		m.setGate(true)
	}
}

// writesUnsetGate reports whether syncGate writes a gate that was never written.
func (m *machine) writesUnsetGate() bool { return m.unfinished() || m.stayOffline() || m.runs() }

// runs reports whether the containers are ready.
func (m *machine) runs() bool { return m.facts.ContainersReady || m.facts.Ready }

func (m *machine) setGate(open bool) {
	already := GateFalse
	if open {
		already = GateTrue
	}
	if m.opts.LabelsOnly || m.facts.Gate == already || m.facts.Gate == GateMissing {
		return
	}
	m.out.Gate = &open
}

// gateOpen reports whether the gate is True once this change is written, or missing.
func (m *machine) gateOpen() bool {
	if m.out.Gate != nil {
		return *m.out.Gate
	}
	return m.facts.Gate == GateTrue || m.facts.Gate == GateMissing
}
