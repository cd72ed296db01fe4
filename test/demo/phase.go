package main

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/podstate"
)

// phase is a phase of the lifecycle of a pod.
type phase string

const (
	starting    phase = "Starting"
	available   phase = "ServiceAvailable"
	waiting     phase = "PreCheck"
	preparing   phase = "Preparing"
	operating   phase = "Operating"
	terminating phase = "Terminating"
	unavailable phase = "NotReady"
)

// phaseOf reads the phase from the labels of a pod.
func phaseOf(pod *corev1.Pod) phase {
	switch {
	case pod.DeletionTimestamp != nil:
		return terminating
	case has(pod, appsv1alpha1.OperateLabelPrefix):
		return operating
	case has(pod, appsv1alpha1.PrepareLabelPrefix):
		return preparing
	case has(pod, appsv1alpha1.PreCheckLabelPrefix):
		return waiting
	case podstate.Available(pod):
		return available
	case pod.Labels[appsv1alpha1.ServiceAvailableLabelKey] != "":
		return unavailable
	default:
		return starting
	}
}

func has(pod *corev1.Pod, prefix string) bool {
	for key := range pod.Labels {
		if strings.HasPrefix(key, prefix+"/") {
			return true
		}
	}
	return false
}
