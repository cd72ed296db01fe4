package kubelet

import (
	"crypto/sha256"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	kubeletstatus "k8s.io/kubernetes/pkg/kubelet/status"
)

// NotReadyAnnotationKey on a pod, with the value "true", makes the readiness probe of each
// of its containers fail.
const NotReadyAnnotationKey = "test.podops.dev/not-ready"

const (
	reasonContainerCreating = "ContainerCreating"
	reasonPodInitializing   = "PodInitializing"
	reasonCompleted         = "Completed"
)

// The functions below return the status that a kubelet reports after the step of their
// name. They do not modify pod. Each keeps conditions that are not a kubelet's, and keeps
// lastTransitionTime unless a condition flips.

// Created is the status once the pod has a sandbox with an address and its
// containers are about to start.
func Created(pod *corev1.Pod, hostIP, podIP string, now metav1.Time) corev1.PodStatus {
	status := *pod.Status.DeepCopy()
	status.Phase = corev1.PodPending
	status.HostIP = hostIP
	status.HostIPs = []corev1.HostIP{{IP: hostIP}}
	status.PodIP = podIP
	status.PodIPs = []corev1.PodIP{{IP: podIP}}
	if status.StartTime == nil {
		status.StartTime = &now
	}
	reason := reasonContainerCreating
	if len(pod.Spec.InitContainers) > 0 {
		reason = reasonPodInitializing
	}
	eachContainer(pod, &status, func(c container) {
		c.status.State = waiting(reason)
		c.status.Ready = false
		c.status.Started = new(false)
	})
	setConditions(pod, &status, now)
	return status
}

// Started is the status once every container that was waiting runs: init
// containers have completed, sidecars and containers run the image of the spec.
// A container that ran before has been restarted.
func Started(pod *corev1.Pod, now metav1.Time) corev1.PodStatus {
	status := *pod.Status.DeepCopy()
	status.Phase = corev1.PodRunning
	eachContainer(pod, &status, func(c container) {
		if c.status.State.Waiting == nil {
			return
		}
		if c.status.LastTerminationState.Terminated != nil {
			c.status.RestartCount++
		}
		c.status.Image = c.spec.Image
		c.status.ImageID = imageID(c.spec.Image)
		c.status.ContainerID = containerID(pod, c.spec.Name, c.status.RestartCount)
		if c.runsOnce {
			c.status.State = terminated(c.status.ContainerID, now, now)
			c.status.Ready = true
			c.status.Started = new(false)
			return
		}
		c.status.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}
		c.status.Ready = probeSucceeds(pod)
		c.status.Resources = c.spec.Resources.DeepCopy()
		c.status.Started = new(true)
	})
	setConditions(pod, &status, now)
	return status
}

// Restarting is the status once every container whose image in the spec differs from the image that
// it runs has been stopped in order to be started with the new image.
func Restarting(pod *corev1.Pod, now metav1.Time) corev1.PodStatus {
	status := *pod.Status.DeepCopy()
	eachContainer(pod, &status, func(c container) {
		running := c.status.State.Running
		if running == nil || c.status.Image == c.spec.Image {
			return
		}
		c.status.LastTerminationState = terminated(c.status.ContainerID, running.StartedAt, now)
		c.status.State = waiting(reasonContainerCreating)
		c.status.Ready = false
		c.status.Started = new(false)
	})
	setConditions(pod, &status, now)
	return status
}

// Synced is the status of a pod whose containers run, with the resources of the spec, readiness probed
// again and the conditions recomputed, readiness gates among them.
func Synced(pod *corev1.Pod, now metav1.Time) corev1.PodStatus {
	status := *pod.Status.DeepCopy()
	eachContainer(pod, &status, func(c container) {
		if c.status.State.Running != nil {
			c.status.Ready = probeSucceeds(pod)
			c.status.Resources = c.spec.Resources.DeepCopy()
		}
	})
	setConditions(pod, &status, now)
	return status
}

// Stopped is the status once every container has ended with exit code 0. Since Kubernetes
// 1.27 a kubelet reports a terminal phase before the final delete, which is visible as long
// as finalizers keep the object.
func Stopped(pod *corev1.Pod, now metav1.Time) corev1.PodStatus {
	status := *pod.Status.DeepCopy()
	if status.Phase != corev1.PodFailed {
		status.Phase = corev1.PodSucceeded
	}
	eachContainer(pod, &status, func(c container) {
		c.status.Ready = c.runsOnce && c.status.Ready
		if c.status.State.Terminated != nil {
			return
		}
		startedAt := now
		if c.status.State.Running != nil {
			startedAt = c.status.State.Running.StartedAt
		}
		c.status.State = terminated(c.status.ContainerID, startedAt, now)
		c.status.Started = new(false)
	})
	setConditions(pod, &status, now)
	return status
}

// HasStopped reports whether no container of the pod runs or will run.
func HasStopped(pod *corev1.Pod) bool {
	for _, s := range pod.Status.ContainerStatuses {
		if s.State.Terminated == nil {
			return false
		}
	}
	return len(pod.Status.ContainerStatuses) == len(pod.Spec.Containers)
}

// setConditions replaces the conditions of a kubelet in status by the conditions that
// Kubernetes' own kubelet computes from the container statuses and from the conditions
// of the pod's readiness gates.
func setConditions(pod *corev1.Pod, status *corev1.PodStatus, now metav1.Time) {
	status.ObservedGeneration = pod.Generation
	old := &pod.Status
	all := append(append([]corev1.ContainerStatus{}, status.InitContainerStatuses...), status.ContainerStatuses...)
	for _, condition := range []corev1.PodCondition{
		observed(pod, corev1.PodReadyToStartContainers),
		kubeletstatus.GeneratePodInitializedCondition(pod, old, all, status.Phase),
		kubeletstatus.GeneratePodReadyCondition(pod, old, status.Conditions, all, status.Phase),
		kubeletstatus.GenerateContainersReadyCondition(pod, old, all, status.Phase),
		observed(pod, corev1.PodScheduled),
	} {
		condition.LastTransitionTime = now
		i, previous := podutil.GetPodConditionFromList(status.Conditions, condition.Type)
		if previous == nil {
			status.Conditions = append(status.Conditions, condition)
			continue
		}
		if previous.Status == condition.Status {
			condition.LastTransitionTime = previous.LastTransitionTime
		}
		condition.LastProbeTime = previous.LastProbeTime
		status.Conditions[i] = condition
	}
}

// observed returns a condition that is True for every pod that a kubelet has started.
func observed(pod *corev1.Pod, of corev1.PodConditionType) corev1.PodCondition {
	return corev1.PodCondition{
		Type:               of,
		Status:             corev1.ConditionTrue,
		ObservedGeneration: podutil.CalculatePodConditionObservedGeneration(&pod.Status, pod.Generation, of),
	}
}

// container is one container of the spec with its status, which is changed in place.
type container struct {
	spec   corev1.Container
	status *corev1.ContainerStatus
	// runsOnce is set for init containers that are not sidecars.
	runsOnce bool
}

// eachContainer calls change for every init container and container of the
// spec, in the order of the spec, and leaves exactly their statuses in status.
func eachContainer(pod *corev1.Pod, status *corev1.PodStatus, change func(container)) {
	walk := func(specs []corev1.Container, old []corev1.ContainerStatus, init bool) []corev1.ContainerStatus {
		var statuses []corev1.ContainerStatus
		for _, spec := range specs {
			s := corev1.ContainerStatus{Name: spec.Name, Image: spec.Image, State: waiting(reasonContainerCreating)}
			if previous, ok := podutil.GetContainerStatus(old, spec.Name); ok {
				s = previous
			}
			sidecar := spec.RestartPolicy != nil && *spec.RestartPolicy == corev1.ContainerRestartPolicyAlways
			change(container{spec: spec, status: &s, runsOnce: init && !sidecar})
			statuses = append(statuses, s)
		}
		return statuses
	}
	status.InitContainerStatuses = walk(pod.Spec.InitContainers, status.InitContainerStatuses, true)
	status.ContainerStatuses = walk(pod.Spec.Containers, status.ContainerStatuses, false)
}

func probeSucceeds(pod *corev1.Pod) bool {
	return pod.Annotations[NotReadyAnnotationKey] != "true"
}

func waiting(reason string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
}

func terminated(id string, startedAt, finishedAt metav1.Time) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		Reason: reasonCompleted, StartedAt: startedAt, FinishedAt: finishedAt, ContainerID: id,
	}}
}

// imageID returns the repository and the digest of an image, as for an image from a registry: the digest
// of its reference, or else a digest that is different for different images, since controllers
// that update pods in place wait for it to change.
func imageID(image string) string {
	name, digest, found := strings.Cut(image, "@")
	if !found {
		digest = fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(image)))
	}
	if tag := strings.LastIndex(name, ":"); tag > strings.LastIndex(name, "/") {
		name = name[:tag]
	}
	return name + "@" + digest
}

func containerID(pod *corev1.Pod, name string, restarts int32) string {
	return fmt.Sprintf("simulated://%s/%s/%d", pod.UID, name, restarts)
}
