package operator

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/podops-dev/podops/pkg/state/podindex"
)

// slimPod drops the fields of a pod that no component reads: most of a pod are its containers, its
// volumes and managedFields. It keeps
//
//   - the fields that pkg/core/lifecycle, pkg/state/podindex, pkg/core/deferreddelete and
//     pkg/resourceconsist read: metadata, readiness gates, phase and conditions,
//   - every field that a webhook rule may send (pkg/core/podfields): each scalar value, map of
//     strings and list of addresses, conditions, and the restarts of containers and whether they are ready and started,
//   - the names, images, requests and limits of containers, which modules read,
//   - the ports of containers and init containers that have names: adapters that run inside of the
//     manager find the port of a Service by them,
//   - the name of the last ephemeral container,
//   - the states and resources of containers in their statuses while a PodOperation may operate on the pod.
//
// A slim pod must never be sent to the API server as a whole; every write is a patch.
// docs/scale.md lists the fields. podPruner removes most of them from encoded pods already.
func slimPod(pod *corev1.Pod) {
	pod.ManagedFields = nil
	if len(pod.Annotations[corev1.LastAppliedConfigAnnotation]) > podindex.MaxAnnotationValueBytes {
		delete(pod.Annotations, corev1.LastAppliedConfigAnnotation) // no rule reads it; podfields refuses it
	}
	statuses := operatedStatuses(pod)
	slimPodSpec(&pod.Spec)
	slimPodStatus(&pod.Status)
	if statuses != nil {
		pod.Status.ContainerStatuses = statuses
	}
	if pod.Size() > maxPodBytes {
		boundPod(pod)
	}
}

// operatedStatuses returns the container statuses of a pod that a PodOperation may operate on, with the fields that
// pkg/core/podoperation reads and the fields that other slim pods have; nil for any other pod.
func operatedStatuses(pod *corev1.Pod) (statuses []corev1.ContainerStatus) {
	operated := false
	for key := range pod.Labels {
		operated = operated || strings.HasPrefix(key, operatedLabel)
	}
	if !operated {
		return nil
	}
	for i := range pod.Status.ContainerStatuses {
		s := &pod.Status.ContainerStatuses[i]
		statuses = append(statuses, corev1.ContainerStatus{
			Name: s.Name, State: s.State, Image: s.Image, ImageID: s.ImageID, ContainerID: s.ContainerID, RestartCount: s.RestartCount, Resources: s.Resources,
			Ready: s.Ready, Started: s.Started,
		})
	}
	return statuses
}

func slimPodSpec(spec *corev1.PodSpec) {
	spec.Containers = slimContainers(spec.Containers)
	spec.InitContainers, spec.EphemeralContainers = namedPorts(spec.InitContainers), lastName(spec.EphemeralContainers)
	spec.Volumes, spec.ImagePullSecrets, spec.HostAliases = nil, nil, nil
	spec.Affinity, spec.Tolerations, spec.TopologySpreadConstraints = nil, nil, nil
	spec.SchedulingGates, spec.ResourceClaims, spec.EvictionResponders = nil, nil, nil
	spec.DNSConfig, spec.Overhead, spec.Resources = nil, nil, nil
}

func slimPodStatus(status *corev1.PodStatus) {
	status.ContainerStatuses = slimStatuses(status.ContainerStatuses)
	status.InitContainerStatuses, status.EphemeralContainerStatuses = nil, nil
	status.ResourceClaimStatuses, status.NodeAllocatableResourceClaimStatuses, status.VolumeHealth = nil, nil, nil
	status.AllocatedResources, status.Resources = nil, nil
}

// lastName returns the last ephemeral container with its name alone, which changes with each container that is
// added: none can be removed.
func lastName(containers []corev1.EphemeralContainer) []corev1.EphemeralContainer {
	if len(containers) == 0 {
		return nil
	}
	name := containers[len(containers)-1].Name
	return []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name}}}
}

// slimStatuses returns the statuses of containers with their names, restarts, and whether they are ready and started.
func slimStatuses(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	var kept []corev1.ContainerStatus
	for i := range statuses {
		s := &statuses[i]
		kept = append(kept, corev1.ContainerStatus{Name: s.Name, Ready: s.Ready, RestartCount: s.RestartCount, Started: s.Started})
	}
	return kept
}

// slimContainers returns the containers with their names, images, requests, limits, restart policies and named ports.
func slimContainers(containers []corev1.Container) []corev1.Container {
	kept := make([]corev1.Container, 0, len(containers))
	for i := range containers {
		c := &containers[i]
		kept = append(kept, corev1.Container{
			Name: c.Name, Image: c.Image, Ports: namedOnly(c.Ports), RestartPolicy: c.RestartPolicy,
			Resources: corev1.ResourceRequirements{Requests: c.Resources.Requests, Limits: c.Resources.Limits},
		})
	}
	return kept
}

// namedPorts returns the containers that have ports with names, with only their names, restart policies and
// named ports; nil for a pod without named ports.
func namedPorts(containers []corev1.Container) []corev1.Container {
	var kept []corev1.Container
	for i := range containers {
		if ports := namedOnly(containers[i].Ports); len(ports) > 0 {
			kept = append(kept, corev1.Container{Name: containers[i].Name, Ports: ports, RestartPolicy: containers[i].RestartPolicy})
		}
	}
	return kept
}

func namedOnly(ports []corev1.ContainerPort) []corev1.ContainerPort {
	return slices.DeleteFunc(slices.Clone(ports), func(port corev1.ContainerPort) bool { return port.Name == "" })
}
