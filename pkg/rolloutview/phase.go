package rolloutview

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/lifecycle"
)

// Phase is where a pod stands in its lifecycle, or next to it.
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

	// PhasePostCheck means that the operation is over and waits for the PostCheck rules.
	PhasePostCheck Phase = "PostCheck"

	// PhaseCompleting means that traffic comes back.
	PhaseCompleting Phase = "Completing"

	// PhaseNotReady means that the pod has been available, and is not Ready.
	PhaseNotReady Phase = "NotReady"

	// PhaseStayOffline means that a user keeps the pod off traffic.
	PhaseStayOffline Phase = "StayOffline"

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
		PhaseNotReady, PhaseStayOffline, PhaseTerminating, PhaseFinished,
	}
}

// PhaseOf returns the phase of a pod and when it began; zero if that is not known. Of several operations
// on the pod, the one that has gone furthest counts, because it decides about traffic.
func PhaseOf(pod *corev1.Pod) (Phase, time.Time) {
	facts := lifecycle.FactsOf(pod)
	_, marked := pod.Labels[appsv1alpha1.ServiceAvailableLabelKey]
	switch finished := pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded; {
	case facts.Terminating:
		return PhaseTerminating, deletedAt(pod)
	case finished:
		return PhaseFinished, facts.ReadySince
	}
	if phase, since, ok := operation(pod.Labels); ok {
		return phase, since
	}
	_, offline := pod.Labels[appsv1alpha1.StayOfflineLabelKey]
	switch {
	case offline:
		return PhaseStayOffline, facts.GateSince
	case !facts.Controlled() && facts.Ready:
		return PhaseAvailable, facts.ReadySince
	case marked && facts.Ready:
		since, _ := lifecycle.ParseTime(pod.Labels[appsv1alpha1.ServiceAvailableLabelKey])
		return PhaseAvailable, since
	case marked:
		return PhaseNotReady, facts.ReadySince
	default:
		return PhaseStarting, pod.CreationTimestamp.Time
	}
}

// operation returns the phase of the operations on a pod, and since when the first of them is in it.
func operation(labels map[string]string) (Phase, time.Time, bool) {
	for _, step := range []struct {
		prefix string
		phase  Phase
	}{
		{appsv1alpha1.OperateLabelPrefix, PhaseOperating},
		{appsv1alpha1.PrepareLabelPrefix, PhasePreparing},
		{appsv1alpha1.PostCheckLabelPrefix, PhasePostCheck},
		{appsv1alpha1.CompleteLabelPrefix, PhaseCompleting},
		{appsv1alpha1.PreCheckLabelPrefix, PhasePreCheck},
	} {
		if since, ok := earliest(labels, step.prefix); ok {
			return step.phase, since, true
		}
	}
	return "", time.Time{}, false
}

// earliest returns the earliest time of the labels with a prefix and any id.
func earliest(labels map[string]string, prefix string) (since time.Time, found bool) {
	for key, value := range labels {
		if !strings.HasPrefix(key, prefix+"/") {
			continue
		}
		found = true
		if at, ok := lifecycle.ParseTime(value); ok && (since.IsZero() || at.Before(since)) {
			since = at
		}
	}
	return since, found
}

// deletedAt returns when the deletion of a pod was requested: its timestamp is the end of the grace period.
func deletedAt(pod *corev1.Pod) time.Time {
	grace := time.Duration(0)
	if pod.DeletionGracePeriodSeconds != nil {
		grace = time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
	}
	return pod.DeletionTimestamp.Add(-grace)
}
