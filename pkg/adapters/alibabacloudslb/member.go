package alibabacloudslb

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/podops-dev/podops/pkg/resourceconsist"
)

// member is a pod that its Service selects, or that still has the finalizer of the Service
// and so waits until its traffic is off.
type member struct {
	id, name string

	// selected is true when the Service selects the pod, and the pod has not ended.
	selected bool

	// ips are the addresses that belong to the pod alone; empty once the pod has ended,
	// since another pod may have them then. nodeID is its server when that is a node.
	ips    []string
	nodeID string

	// server is the server to add to groups, unless serverErr is set.
	server    Server
	serverErr error

	// statuses are the statuses of the pod; LifecycleReady is false while it has no address.
	statuses resourceconsist.PodEmployeeStatuses
}

// hasAddress reports whether traffic of the backend goes to the pod.
func (m member) hasAddress(b Backend) bool {
	if b.onNode() {
		return m.nodeID != "" && m.nodeID == b.ServerID
	}
	return slices.Contains(m.ips, b.ServerIP)
}

// onNode reports whether the backend is a whole node.
func (b Backend) onNode() bool {
	return b.Type == ServerECS || b.Type == "" && b.ServerIP == ""
}

// expected returns the expected state of the pod at the load balancer.
func (m member) expected(settings Settings) PodExtraStatus {
	switch {
	case !m.statuses.LifecycleReady:
		return PodExtraStatus{Traffic: TrafficOff}
	case settings.Managed:
		return PodExtraStatus{Traffic: TrafficOn, Weight: settings.Weight}
	default:
		return PodExtraStatus{Traffic: TrafficOn}
	}
}

func (m member) status(extra PodExtraStatus) PodStatus {
	statuses := m.statuses
	statuses.ExtraStatus = extra
	return PodStatus{ID: m.id, Name: m.name, Statuses: statuses}
}

// members returns the members of a Service, sorted by name.
func (a *Adapter) members(ctx context.Context, service *corev1.Service) ([]member, error) {
	var pods corev1.PodList
	if err := a.client.List(ctx, &pods, client.InNamespace(service.Namespace)); err != nil {
		return nil, fmt.Errorf("listing the pods of namespace %s: %w", service.Namespace, err)
	}
	finalizer := resourceconsist.GenerateLifecycleFinalizer(service.Name)
	var members []member
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !selects(service, pod) && !controllerutil.ContainsFinalizer(pod, finalizer) {
			continue
		}
		m, err := a.member(ctx, service, pod)
		if err != nil {
			return nil, err
		}
		members = append(members, m)
	}
	slices.SortFunc(members, func(x, y member) int { return strings.Compare(x.name, y.name) })
	return members, nil
}

func (a *Adapter) member(ctx context.Context, service *corev1.Service, pod *corev1.Pod) (member, error) {
	statuses, err := resourceconsist.GetCommonPodEmployeeStatus(pod)
	if err != nil {
		return member{}, fmt.Errorf("pod %s: %w", pod.Name, err)
	}
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	m := member{
		id:       shortID(pod.UID),
		name:     pod.Name,
		selected: selects(service, pod) && !ended,
		statuses: statuses,
	}
	m.server, m.serverErr = a.resolve(ctx, pod)
	if !ended {
		if m.serverErr == nil && m.server.Type == ServerECS {
			m.nodeID = m.server.ID
		}
		if !pod.Spec.HostNetwork {
			m.ips = podIPs(pod)
		}
	}
	m.statuses.LifecycleReady = statuses.LifecycleReady && statuses.Ip != "" && !ended
	return m, nil
}

func podIPs(pod *corev1.Pod) []string {
	var ips []string
	for _, ip := range append([]corev1.PodIP{{IP: pod.Status.PodIP}}, pod.Status.PodIPs...) {
		if ip.IP != "" && !slices.Contains(ips, ip.IP) {
			ips = append(ips, ip.IP)
		}
	}
	return ips
}

// selects reports whether the Service selects the pod. A Service without a selector selects
// no pods.
func selects(service *corev1.Service, pod *corev1.Pod) bool {
	return len(service.Spec.Selector) > 0 && service.Namespace == pod.Namespace &&
		labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(pod.Labels))
}
