package alibabacloudslb

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Labels and annotations of Services that the cloud controller manager reads or writes.
const (
	// LoadBalancerIDLabelKey holds the id of a Service's load balancer.
	LoadBalancerIDLabelKey = "service.k8s.alibaba/loadbalancer-id"
	// LoadBalancerIDAnnotationKey is set by users who provide a load balancer.
	LoadBalancerIDAnnotationKey = "service.beta.kubernetes.io/alibaba-cloud-loadbalancer-id"
	// GroupPortAnnotationKey is set by users who provide vServer groups:
	// rsp-a:80,rsp-b:443, a group and its port of the Service.
	GroupPortAnnotationKey = "service.beta.kubernetes.io/alibaba-cloud-loadbalancer-vgroup-port"
)

// Annotations of Services that belong to PodOps.
const (
	// BackendsAnnotationKey selects which component registers the pods: BackendsObserved or
	// BackendsManaged. With either value a Service of any type belongs to this adapter.
	BackendsAnnotationKey = "podops.dev/slb-backends"
	// GroupsAnnotationKey names the vServer groups of a managed Service, each with the
	// port on which its pods listen: rsp-a:8080,rsp-b:8443.
	GroupsAnnotationKey = "podops.dev/slb-vserver-groups"
	// WeightAnnotationKey is the weight of a pod with traffic in a managed Service, 1 to
	// 100. Default 100.
	WeightAnnotationKey = "podops.dev/slb-weight"
	// TrafficOffAnnotationKey selects how the traffic of a pod in a managed Service is
	// turned off: OffByWeight (default) or OffByRemoval.
	TrafficOffAnnotationKey = "podops.dev/slb-traffic-off"
	// UsedGroupsAnnotationKey is written by the adapter before it first adds a pod to a
	// group of a managed Service: rsp-a,rsp-b. Pods are removed from the groups named here,
	// too, when GroupsAnnotationKey changes or is removed.
	UsedGroupsAnnotationKey = "podops.dev/slb-used-vserver-groups"
)

// Values of annotations.
const (
	BackendsObserved = "observed"
	BackendsManaged  = "managed"
	OffByWeight      = "weight"
	OffByRemoval     = "remove"
)

// maxGroups bounds the groups of a Service, including former groups.
const maxGroups = 50

// GroupPort is a vServer group, and the port of the pods in it.
type GroupPort struct {
	Group string
	Port  int32
}

// Settings holds the labels and annotations of a Service for its load balancer.
type Settings struct {
	// Managed is true when the adapter registers pods itself.
	Managed bool

	// LoadBalancerID and ObservedGroups are for observed Services. With ObservedGroups the
	// groups of the load balancer are not listed.
	LoadBalancerID string
	ObservedGroups []string

	// Groups, UsedGroups, Weight and OffByRemoval are for managed Services. UsedGroups are the
	// values of Groups before earlier edits, sorted; some may be in Groups as well.
	Groups       []GroupPort
	UsedGroups   []string
	Weight       int32
	OffByRemoval bool
}

// ParseSettings parses the labels and annotations of a Service. Its errors name the
// annotation and its valid values.
func ParseSettings(service *corev1.Service) (Settings, error) {
	used, err := parseIDs(UsedGroupsAnnotationKey, service.Annotations[UsedGroupsAnnotationKey])
	if err != nil {
		return Settings{}, err
	}
	switch mode := service.Annotations[BackendsAnnotationKey]; {
	case mode == BackendsManaged:
		return parseManaged(service, used)
	case mode == BackendsObserved, mode == "" && len(used) == 0:
		return parseObserved(service)
	case mode == "":
		// It was managed: its pods must be removed from the groups.
		return Settings{Managed: true, UsedGroups: used, Weight: MaxWeight}, nil
	default:
		return Settings{}, fmt.Errorf("annotation %s: %q: use %s or %s", BackendsAnnotationKey, bounded(mode), BackendsObserved, BackendsManaged)
	}
}

func parseObserved(service *corev1.Service) (Settings, error) {
	settings := Settings{LoadBalancerID: service.Labels[LoadBalancerIDLabelKey]}
	key := "label " + LoadBalancerIDLabelKey
	if settings.LoadBalancerID == "" {
		key = "annotation " + LoadBalancerIDAnnotationKey
		settings.LoadBalancerID = service.Annotations[LoadBalancerIDAnnotationKey]
	}
	if settings.LoadBalancerID != "" && !isID(settings.LoadBalancerID) {
		return Settings{}, fmt.Errorf("%s: %q is not the id of a load balancer", key, bounded(settings.LoadBalancerID))
	}
	pairs, err := parseGroupPorts(GroupPortAnnotationKey, service.Annotations[GroupPortAnnotationKey])
	if err != nil {
		return Settings{}, err
	}
	for _, pair := range pairs {
		settings.ObservedGroups = append(settings.ObservedGroups, pair.Group)
	}
	slices.Sort(settings.ObservedGroups)
	settings.ObservedGroups = slices.Compact(settings.ObservedGroups)
	return settings, nil
}

func parseManaged(service *corev1.Service, used []string) (Settings, error) {
	groups, err := parseGroupPorts(GroupsAnnotationKey, service.Annotations[GroupsAnnotationKey])
	if err != nil {
		return Settings{}, err
	}
	if len(groups) == 0 {
		return Settings{}, fmt.Errorf("annotation %s is missing: with %s: %s it names vServer groups and the port of the pods, as rsp-abc:8080",
			GroupsAnnotationKey, BackendsAnnotationKey, BackendsManaged)
	}
	settings := Settings{Managed: true, Groups: groups, UsedGroups: used, Weight: MaxWeight}
	if text, set := service.Annotations[WeightAnnotationKey]; set {
		weight, err := strconv.ParseInt(text, 10, 32)
		if err != nil || weight < 1 || weight > MaxWeight {
			return Settings{}, fmt.Errorf("annotation %s: %q is not a whole number from 1 to %d", WeightAnnotationKey, bounded(text), MaxWeight)
		}
		settings.Weight = int32(weight)
	}
	switch how := service.Annotations[TrafficOffAnnotationKey]; how {
	case "", OffByWeight:
	case OffByRemoval:
		settings.OffByRemoval = true
	default:
		return Settings{}, fmt.Errorf("annotation %s: %q: use %s or %s", TrafficOffAnnotationKey, bounded(how), OffByWeight, OffByRemoval)
	}
	return settings, nil
}

// parseGroupPorts parses a list such as rsp-a:80,rsp-b:443. A duplicate pair counts once.
func parseGroupPorts(key, text string) ([]GroupPort, error) {
	var pairs []GroupPort
	for _, part := range splitList(text) {
		id, portText, _ := strings.Cut(part, ":")
		port, err := strconv.ParseUint(portText, 10, 16)
		if !isID(id) || err != nil || port == 0 {
			return nil, fmt.Errorf("annotation %s: %q is not a vServer group and a port, as rsp-abc:8080", key, bounded(part))
		}
		pairs = append(pairs, GroupPort{Group: id, Port: int32(port)})
		if len(pairs) > maxGroups {
			return nil, fmt.Errorf("annotation %s names more than %d vServer groups", key, maxGroups)
		}
	}
	slices.SortFunc(pairs, func(a, b GroupPort) int {
		if byGroup := strings.Compare(a.Group, b.Group); byGroup != 0 {
			return byGroup
		}
		return int(a.Port - b.Port)
	})
	return slices.Compact(pairs), nil
}

func parseIDs(key, text string) ([]string, error) {
	ids := splitList(text)
	if len(ids) > maxGroups {
		return nil, fmt.Errorf("annotation %s names more than %d vServer groups: remove the groups that are no longer in use", key, maxGroups)
	}
	for _, id := range ids {
		if !isID(id) {
			return nil, fmt.Errorf("annotation %s: %q is not the id of a vServer group", key, bounded(id))
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

func splitList(text string) []string {
	var parts []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}
	return parts
}

// isID accepts the characters of Alibaba's ids, and no character with another meaning in a
// list or a request.
func isID(text string) bool {
	isIDRune := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-'
	}
	return text != "" && len(text) <= 64 && text[0] != '-' &&
		!strings.ContainsFunc(text, func(r rune) bool { return !isIDRune(r) })
}

// groupIDs returns every group that may hold pods of a managed Service, sorted.
func (s Settings) groupIDs() []string {
	ids := slices.Clone(s.UsedGroups)
	for _, pair := range s.Groups {
		ids = append(ids, pair.Group)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// unrecorded reports whether UsedGroups lacks a group.
func (s Settings) unrecorded() bool { return len(s.groupIDs()) > len(s.UsedGroups) }

// namesGroup reports whether Groups names the group.
func (s Settings) namesGroup(id string) bool {
	return slices.ContainsFunc(s.Groups, func(pair GroupPort) bool { return pair.Group == id })
}

// Owns reports whether a Service belongs to this adapter: it has BackendsAnnotationKey or a load
// balancer of Alibaba's, or its type is LoadBalancer without a class or with the class of these
// load balancers.
func Owns(service *corev1.Service) bool {
	if service.Annotations[BackendsAnnotationKey] != "" || service.Annotations[UsedGroupsAnnotationKey] != "" ||
		service.Labels[LoadBalancerIDLabelKey] != "" {
		return true
	}
	if service.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return false
	}
	class := service.Spec.LoadBalancerClass
	return class == nil || *class == loadBalancerClass
}

const loadBalancerClass = "alibabacloud.com/clb"
