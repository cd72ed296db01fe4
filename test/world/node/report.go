package node

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Broken is an image whose containers never become ready.
const Broken = "broken"

// facts are what a kubelet knows of a pod beside the object.
type facts struct {
	// start is the time at which the containers run, and ready the time at which they first pass their probes.
	start, ready time.Time

	// complete is the time at which the containers end by themselves; zero if they do not.
	complete time.Time

	// stop is the time at which the containers of a terminating pod have ended; zero if it does not terminate.
	stop time.Time

	// unwell is the time until which the containers fail their probes.
	unwell time.Time
}

// report returns the status that a kubelet reports of a pod, and the time at which that changes by itself, which
// is zero if it does not. A pod is removed once its containers have ended because of its deletion.
func report(pod *corev1.Pod, f facts, address string, now time.Time) (status corev1.PodStatus, next time.Time, remove bool) {
	status = *pod.Status.DeepCopy()
	status.ObservedGeneration = pod.Generation
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	switch {
	case ended:
		return status, time.Time{}, pod.DeletionTimestamp != nil
	case !f.stop.IsZero() && !now.Before(f.stop):
		const terminated = 143 // SIGTERM
		end(&status, pod, terminated, now)
		return status, time.Time{}, true
	case !f.complete.IsZero() && !now.Before(f.complete):
		end(&status, pod, 0, now)
		return status, time.Time{}, pod.DeletionTimestamp != nil
	case now.Before(f.start):
		status.Phase = corev1.PodPending
		run(&status, pod, false, false, now)
	default:
		status.Phase = corev1.PodRunning
		status.PodIP, status.PodIPs = address, []corev1.PodIP{{IP: address}}
		if status.StartTime == nil {
			start := metav1.NewTime(now.Truncate(time.Second))
			status.StartTime = &start
		}
		run(&status, pod, true, passes(pod, f, now), now)
	}
	return status, earliest(now, f.start, f.ready, f.complete, f.stop, f.unwell), false
}

// passes reports whether the containers pass their probes.
func passes(pod *corev1.Pod, f facts, now time.Time) bool {
	broken := slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Image == Broken })
	return !broken && !now.Before(f.ready) && !now.Before(f.unwell)
}

// earliest returns the earliest of the times that are after now; zero if none is.
func earliest(now time.Time, times ...time.Time) time.Time {
	var first time.Time
	for _, t := range times {
		if t.After(now) && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}

// run sets the containers and conditions of a pod that is to run.
func run(status *corev1.PodStatus, pod *corev1.Pod, running, ready bool, now time.Time) {
	status.ContainerStatuses = nil
	for _, container := range pod.Spec.Containers {
		state := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}
		if running {
			state = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
			if status.StartTime != nil {
				state.Running.StartedAt = *status.StartTime
			}
		}
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: container.Name, Image: container.Image, ImageID: "test/" + container.Image, State: state, Ready: ready, Started: &running,
		})
	}
	set(status, corev1.PodInitialized, true, "", now)
	set(status, corev1.ContainersReady, ready, "ContainersNotReady", now)
	gates := !slices.ContainsFunc(pod.Spec.ReadinessGates, func(gate corev1.PodReadinessGate) bool {
		return !isTrue(*status, gate.ConditionType)
	})
	reason := "ContainersNotReady"
	if ready {
		reason = "ReadinessGatesNotReady"
	}
	set(status, corev1.PodReady, ready && gates, reason, now)
}

// end sets the containers and conditions of a pod that has ended.
func end(status *corev1.PodStatus, pod *corev1.Pod, code int32, now time.Time) {
	status.Phase = corev1.PodSucceeded
	reason := "Completed"
	if code != 0 {
		status.Phase, reason = corev1.PodFailed, "Error"
	}
	run(status, pod, true, false, now)
	for i := range status.ContainerStatuses {
		at := metav1.NewTime(now.Truncate(time.Second))
		status.ContainerStatuses[i].State = corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, FinishedAt: at},
		}
	}
	set(status, corev1.PodReady, false, "PodCompleted", now)
	set(status, corev1.ContainersReady, false, "PodCompleted", now)
}

// isTrue reports whether a condition is True.
func isTrue(status corev1.PodStatus, kind corev1.PodConditionType) bool {
	return slices.ContainsFunc(status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == kind && c.Status == corev1.ConditionTrue
	})
}

// set sets a condition as a kubelet does. Its reason is for a condition that is False.
func set(status *corev1.PodStatus, kind corev1.PodConditionType, on bool, reason string, now time.Time) {
	wanted := corev1.PodCondition{
		Type: kind, Status: corev1.ConditionFalse, Reason: reason, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
	}
	if on {
		wanted.Status, wanted.Reason = corev1.ConditionTrue, ""
	}
	i := slices.IndexFunc(status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	if i < 0 {
		status.Conditions = append(status.Conditions, wanted)
		return
	}
	if status.Conditions[i].Status == wanted.Status {
		wanted.LastTransitionTime = status.Conditions[i].LastTransitionTime
	}
	wanted.ObservedGeneration = status.Conditions[i].ObservedGeneration
	status.Conditions[i] = wanted
}
