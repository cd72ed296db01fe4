package lifecycle

import appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"

// Readiness is the combined state of a pod's gate and kubelet, from which waits are measured.
type Readiness string

const (
	// ReadinessAtRest means that the pod is Ready and its gate is not False. Nothing waits.
	ReadinessAtRest Readiness = ""

	// ReadinessNotReady means that the pod is not Ready, and the gate alone does not change that.
	// The settle time runs.
	ReadinessNotReady Readiness = "NotReady"

	// ReadinessClosing means that the gate is False, and the kubelet has not made the pod unready yet.
	ReadinessClosing Readiness = "Closing"

	// ReadinessOpening means that the gate is True, and the kubelet has not made the pod Ready yet,
	// although nothing else keeps it from being so.
	ReadinessOpening Readiness = "Opening"
)

// Readiness returns the state that SteadyFor measures.
func (f PodFacts) Readiness() Readiness {
	switch {
	case f.Gate == GateFalse && f.Ready:
		return ReadinessClosing
	case f.Gate == GateTrue && f.GatesOnly:
		return ReadinessOpening
	case !f.Ready:
		return ReadinessNotReady
	default:
		return ReadinessAtRest
	}
}

// lags reports whether the kubelet has not followed the gate yet.
func (f PodFacts) lags() bool {
	return f.Readiness() == ReadinessClosing || f.Readiness() == ReadinessOpening
}

// isLate reports whether the kubelet has not followed the gate within GateSyncTimeout. Once
// that is written on the gate it holds until the kubelet follows or the gate changes.
func (m *machine) isLate() bool {
	return m.facts.lags() && (m.facts.NotSyncing || m.elapsed(m.opts.GateSyncTimeout))
}

// syncReason sets the reason of the gate while the kubelet does not follow it in time, and
// removes it when the kubelet does or when the gate changes.
func (m *machine) syncReason() {
	if m.opts.LabelsOnly {
		return
	}
	var reason string
	if m.out.Gate == nil && m.isLate() {
		reason = appsv1alpha1.ReasonKubeletNotSyncing
	}
	if (reason != "") != m.facts.NotSyncing {
		m.out.GateReason = &reason
	}
}
