package alibabacloudslb

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/podops-dev/podops/pkg/resourceconsist"
)

// defaultGroup is the id for a load balancer's backends that are in no vServer group.
// No group has this id.
const defaultGroup = "(default server group)"

func (a *Adapter) currentObserved(
	ctx context.Context, service *corev1.Service, settings Settings, members []member,
) ([]resourceconsist.IEmployee, error) {
	open := expectsPods(service, settings)
	if !open && service.DeletionTimestamp == nil {
		return nil, nil
	}
	groups, err := a.observedGroups(ctx, service, settings)
	if err != nil {
		return nil, fmt.Errorf("service %s/%s: %w", service.Namespace, service.Name, err)
	}
	if err := nodesOnlyOf(members, groups); err != nil {
		return nil, fmt.Errorf("service %s/%s: %w", service.Namespace, service.Name, err)
	}
	var current []resourceconsist.IEmployee
	for _, m := range members {
		extra, registered := observedTraffic(m, groups)
		if registered || open && m.selected && m.expected(settings) == extra {
			current = append(current, m.status(extra))
		}
	}
	return append(current, unattributed(members, groups, settings)...), nil
}

// unattributed returns employees for backends without a known pod in groups that hold only
// backends of this Service: deleted pods that the cloud controller manager has not removed
// yet. Other groups may be shared with other clusters.
func unattributed(members []member, groups map[string][]Backend, settings Settings) []resourceconsist.IEmployee {
	var found []resourceconsist.IEmployee
	if len(settings.ObservedGroups) > 0 {
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(groups)) {
		if id == defaultGroup {
			continue
		}
		for _, b := range unattributedIn(members, groups[id]) {
			statuses := resourceconsist.PodEmployeeStatuses{Ip: b.ServerIP, ExtraStatus: PodExtraStatus{Traffic: TrafficPartial}}
			found = append(found, PodStatus{ID: fmt.Sprintf("%s/%s/%s/%d", id, b.ServerID, b.ServerIP, b.Port), Statuses: statuses})
		}
	}
	return found
}

// observedGroups returns the groups of an observed Service with their backends. Without
// groups no load balancer sends traffic to the Service.
func (a *Adapter) observedGroups(ctx context.Context, service *corev1.Service, settings Settings) (map[string][]Backend, error) {
	groups := map[string][]Backend{}
	ids := settings.ObservedGroups
	if len(ids) == 0 {
		if settings.LoadBalancerID == "" {
			return nil, withoutLoadBalancer(service)
		}
		inNoGroup, err := a.api.LoadBalancer(ctx, settings.LoadBalancerID)
		if isLoadBalancerMissing(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if len(inNoGroup) > 0 {
			groups[defaultGroup] = inNoGroup
		}
		if ids, err = a.backendGroups(ctx, service, settings.LoadBalancerID); err != nil {
			return nil, err
		}
	}
	if len(ids) > 0 {
		// The listeners of a Service with groups use these.
		delete(groups, defaultGroup)
	}
	for _, id := range ids {
		backends, err := a.api.Group(ctx, id)
		if err != nil {
			return nil, err
		}
		groups[id] = backends
	}
	return groups, nil
}

// backendGroups returns the ids of the groups that the cloud controller manager has created for
// the Service, named k8s/<port>/<name>/<namespace>/<cluster>.
func (a *Adapter) backendGroups(ctx context.Context, service *corev1.Service, loadBalancerID string) ([]string, error) {
	all, err := a.api.Groups(ctx, loadBalancerID)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, group := range all {
		parts := strings.Split(group.Name, "/")
		if len(parts) == 5 && parts[0] == "k8s" && parts[2] == service.Name && parts[3] == service.Namespace {
			ids = append(ids, group.ID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// withoutLoadBalancer returns nil when the Service has no load balancer yet. A Service with
// an address of an unknown load balancer may have traffic.
func withoutLoadBalancer(service *corev1.Service) error {
	if len(service.Status.LoadBalancer.Ingress) == 0 {
		return nil
	}
	return fmt.Errorf("it has the address of a load balancer, and label %s does not name it: "+
		"the cloud controller manager sets it; or set annotation %s to %s", LoadBalancerIDLabelKey, BackendsAnnotationKey, BackendsManaged)
}

// nodesOnlyOf fails when a backend is a node without a member on its network: any pod may
// get traffic through it, so absence does not mean that traffic is off.
func nodesOnlyOf(members []member, groups map[string][]Backend) error {
	for id, backends := range groups {
		for _, backend := range unattributedIn(members, backends) {
			if backend.onNode() && backend.Weight > 0 {
				return fmt.Errorf("vServer group %s: backend %s is a node, which hides the pods behind it: "+
					"use network interfaces as backends (annotation service.beta.kubernetes.io/backend-type: eni)", id, backend.ServerID)
			}
		}
	}
	return nil
}
