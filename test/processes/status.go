package processes

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// run is the state of a pod that a kubelet reports: its sandbox and the process of its container.
type run struct {
	address string
	began   metav1.Time // of the pod

	image    string // that the process runs, or is about to
	running  bool
	started  metav1.Time
	ready    bool // as the probe reports
	restarts int32

	waiting string // why there is no process; empty: the container is being created
	// ended is set when the last process has ended, final when no other process follows.
	ended    bool
	final    bool
	exitCode int32
	finished metav1.Time
}

// statusOf returns the status that a kubelet reports for a pod, at a time. Conditions of others are not in it.
func statusOf(pod *corev1.Pod, r run, now metav1.Time) corev1.PodStatus {
	status := corev1.PodStatus{
		ObservedGeneration: pod.Generation, HostIP: nodeIP, HostIPs: []corev1.HostIP{{IP: nodeIP}},
		PodIP: r.address, PodIPs: []corev1.PodIP{{IP: r.address}}, StartTime: &r.began, Phase: phaseOf(r),
		ContainerStatuses: []corev1.ContainerStatus{containerStatus(pod, r)},
	}
	ready := r.running && r.ready
	for _, c := range []struct {
		of    corev1.PodConditionType
		holds bool
	}{
		{corev1.PodReadyToStartContainers, !r.final},
		{corev1.PodInitialized, true},
		{corev1.ContainersReady, ready},
		{corev1.PodReady, ready && gatesOpen(pod)},
	} {
		condition := corev1.PodCondition{Type: c.of, Status: corev1.ConditionFalse, LastTransitionTime: now, ObservedGeneration: pod.Generation}
		if c.holds {
			condition.Status = corev1.ConditionTrue
		}
		for _, previous := range pod.Status.Conditions {
			if previous.Type == c.of && previous.Status == condition.Status {
				condition.LastTransitionTime = previous.LastTransitionTime
			}
		}
		status.Conditions = append(status.Conditions, condition)
	}
	return status
}

// gatesOpen reports whether each readiness gate is True.
func gatesOpen(pod *corev1.Pod) bool {
	for _, gate := range pod.Spec.ReadinessGates {
		open := false
		for _, condition := range pod.Status.Conditions {
			open = open || condition.Type == gate.ConditionType && condition.Status == corev1.ConditionTrue
		}
		if !open {
			return false
		}
	}
	return true
}

func phaseOf(r run) corev1.PodPhase {
	switch {
	case r.final && r.exitCode == 0:
		return corev1.PodSucceeded
	case r.final:
		return corev1.PodFailed
	case r.running, r.ended:
		return corev1.PodRunning
	default:
		return corev1.PodPending
	}
}

func containerStatus(pod *corev1.Pod, r run) corev1.ContainerStatus {
	started := r.running
	s := corev1.ContainerStatus{
		Name: pod.Spec.Containers[0].Name, Image: r.image, ImageID: "process://" + r.image, RestartCount: r.restarts,
		Ready: r.running && r.ready, Started: &started,
		ContainerID: fmt.Sprintf("process://%s/%d", pod.UID, r.restarts),
	}
	terminated := &corev1.ContainerStateTerminated{
		ExitCode: r.exitCode, Reason: "Completed", StartedAt: r.started, FinishedAt: r.finished, ContainerID: s.ContainerID,
	}
	if r.exitCode != 0 {
		terminated.Reason = "Error"
	}
	switch {
	case r.running:
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: r.started}
	case r.final:
		s.State.Terminated = terminated
	default:
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
		if r.waiting != "" {
			s.State.Waiting.Reason = r.waiting
		}
		s.ContainerID, s.ImageID = "", ""
	}
	if r.ended && !r.final {
		s.LastTerminationState.Terminated = terminated
	}
	return s
}
