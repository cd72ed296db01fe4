package rolloutview

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/podstate"
)

// Phase is the phase of a pod: a phase of package podstate, with two phases for pods that are not
// available.
type Phase string

// Phases of a pod, in the order in which a pod passes them.
const (
	// PhaseStarting means that the pod has not been available yet.
	PhaseStarting Phase = "Starting"

	// PhaseAvailable means that the pod may serve, and nothing operates on it.
	PhaseAvailable Phase = "Available"

	// PhasePreCheck means that an operation waits for the PreCheck rules.
	PhasePreCheck Phase = "PreCheck"

	// PhasePreparing means that the operation is permitted, and traffic goes off.
	PhasePreparing Phase = "Preparing"

	// PhaseOperating means that the operation may run.
	PhaseOperating Phase = "Operating"

	// PhasePostCheck means that the operation is over, or the pod is new, and waits for the PostCheck rules.
	PhasePostCheck Phase = "PostCheck"

	// PhaseCompleting means that traffic comes back.
	PhaseCompleting Phase = "Completing"

	// PhaseNotReady means that the pod has been available, and is not Ready.
	PhaseNotReady Phase = "NotReady"

	// PhaseOffline means that a user keeps the pod off traffic.
	PhaseOffline Phase = "Offline"

	// PhaseTerminating means that the pod is deleted.
	PhaseTerminating Phase = "Terminating"

	// PhaseFinished means that the pod has succeeded or failed.
	PhaseFinished Phase = "Finished"

	// PhaseGone is the phase of a pod that a later view does not have. It is part of Changes only.
	PhaseGone Phase = "Gone"
)

// Phases returns all phases of pods, in order.
func Phases() []Phase {
	return []Phase{
		PhaseStarting, PhaseAvailable, PhasePreCheck, PhasePreparing, PhaseOperating, PhasePostCheck, PhaseCompleting,
		PhaseNotReady, PhaseOffline, PhaseTerminating, PhaseFinished,
	}
}

// PodPhase returns the phase of a pod and when it began; zero if that is not known.
func PodPhase(pod *corev1.Pod) (Phase, time.Time) { return currentPhase(pod, podstate.Of(pod, nil)) }

// currentPhase separates pods that have been available from pods that have not: only the first are a loss.
func currentPhase(pod *corev1.Pod, state podstate.State) (Phase, time.Time) {
	switch state.Phase {
	case podstate.PhaseUnavailable:
		// The mark comes before Ready, which a kubelet reports with a precision of seconds. A pod that has been
		// unready since its creation has never been available.
		marked, ok := lifecycle.ParseTime(pod.Labels[appsv1alpha1.ServiceAvailableLabelKey])
		since := state.Facts.ReadySince
		if ok && !since.Before(marked.Truncate(time.Second)) && !since.Equal(pod.CreationTimestamp.Time) {
			return PhaseNotReady, state.Facts.ReadySince
		}
		return PhaseStarting, pod.CreationTimestamp.Time
	case podstate.PhaseNotControlled:
		if state.Ready {
			return PhaseAvailable, state.Facts.ReadySince
		}
		return PhaseStarting, pod.CreationTimestamp.Time
	default:
		return Phase(state.Phase), state.Since
	}
}
