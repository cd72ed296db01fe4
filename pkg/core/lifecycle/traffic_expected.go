package lifecycle

import (
	"slices"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// ExpectsTraffic reports whether service controllers should have the pod's traffic on:
//   - the pod is not terminating, and
//   - it is Ready, or only the gate of PodOps kept it from being Ready and that gate is open, and
//   - the gate is not closed, and
//   - no id prepares or operates, and the user does not keep the pod offline.
//
// A pod that is not under PodOps only has to be Ready and not terminating.
func (f PodFacts) ExpectsTraffic() bool {
	if f.Terminating || !f.Controlled() {
		return f.Ready && !f.Terminating
	}
	fit := f.Ready || f.Gate == GateTrue && f.GatesOnly
	return fit && f.Gate != GateFalse && !f.Preparing() && !f.operating() && !hasKey(f.Labels, appsv1alpha1.StayOfflineLabelKey)
}

// Preparing reports whether some id of the pod waits for its traffic to go off, under
// either name of the label.
func (f PodFacts) Preparing() bool {
	return slices.ContainsFunc(operationIDs(f.Labels), func(id string) bool {
		return hasLabel(f.Labels, appsv1alpha1.PrepareLabelPrefix, id) || hasLabel(f.Labels, appsv1alpha1.PreparingLabelPrefix, id)
	})
}

// operating reports whether some id of the pod was granted its operation.
func (f PodFacts) operating() bool {
	return slices.ContainsFunc(operationIDs(f.Labels), func(id string) bool { return hasLabel(f.Labels, appsv1alpha1.OperateLabelPrefix, id) })
}
