package alibabacloudslb

import (
	"maps"
	"slices"
)

// groupBackend is a backend in a vServer group.
type groupBackend struct {
	group   string
	backend Backend
}

// registration holds the backends of a pod.
type registration struct {
	// name is the name of the pod; empty when no backend has it.
	name string
	// wanted holds the backends with the address of the pod in a group of the Service, at
	// the port of that group.
	wanted map[GroupPort][]Backend
	// stale holds backends that were added for the pod and are no longer wanted: at a
	// former address or port, in a former group, or of a pod that left the Service.
	stale []groupBackend
}

func (r *registration) empty() bool { return len(r.wanted) == 0 && len(r.stale) == 0 }

// registrations assigns the backends in the groups of a managed Service to the pods to
// which they send traffic. A backend belongs to the pod that has its address now, and
// otherwise to the pod it was added for: addresses are reused. It leaves out backends that
// are neither.
func registrations(serviceID string, settings Settings, members []member, groups map[string][]Backend) map[string]*registration {
	byID := map[string]*registration{}
	of := func(id string) *registration {
		if byID[id] == nil {
			byID[id] = &registration{wanted: map[GroupPort][]Backend{}}
		}
		return byID[id]
	}
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		for _, backend := range groups[group] {
			pair := GroupPort{Group: group, Port: backend.Port}
			at := slices.IndexFunc(members, func(m member) bool { return m.hasAddress(backend) })
			switch id, name, ours := parseDescription(backend.Description, serviceID); {
			case at >= 0 && slices.Contains(settings.Groups, pair):
				r := of(members[at].id)
				r.wanted[pair] = append(r.wanted[pair], backend)
			case ours:
				r := of(id)
				r.name = name
				r.stale = append(r.stale, groupBackend{group, backend})
			}
		}
	}
	return byID
}

// managedTraffic returns the traffic of a pod behind a managed Service.
func managedTraffic(r *registration, settings Settings) PodExtraStatus {
	if r == nil || r.empty() {
		return PodExtraStatus{Traffic: TrafficOff}
	}
	if len(r.stale) > 0 {
		return PodExtraStatus{Traffic: TrafficPartial}
	}
	var weights []int32
	for _, pair := range settings.Groups {
		for _, backend := range r.wanted[pair] {
			weights = append(weights, backend.Weight)
		}
	}
	slices.Sort(weights)
	weights = slices.Compact(weights)
	everywhere := len(r.wanted) == len(settings.Groups)
	switch {
	case len(weights) == 1 && weights[0] > 0 && everywhere:
		return PodExtraStatus{Traffic: TrafficOn, Weight: weights[0]}
	case len(weights) == 1 && weights[0] == 0 && !settings.OffByRemoval:
		return PodExtraStatus{Traffic: TrafficOff}
	default:
		return PodExtraStatus{Traffic: TrafficPartial}
	}
}

// observedTraffic returns the traffic of a pod behind an observed Service, and whether any
// group has the pod at all.
func observedTraffic(m member, groups map[string][]Backend) (extra PodExtraStatus, registered bool) {
	on, off, absent := 0, 0, 0
	for _, backends := range groups {
		found := false
		for _, backend := range backends {
			switch {
			case !m.hasAddress(backend):
				continue
			case backend.Weight > 0:
				on++
			default:
				off++
			}
			found = true
		}
		if !found {
			absent++
		}
	}
	switch registered = on+off > 0; {
	case on == 0:
		return PodExtraStatus{Traffic: TrafficOff}, registered
	case off == 0 && absent == 0:
		return PodExtraStatus{Traffic: TrafficOn}, registered
	default:
		return PodExtraStatus{Traffic: TrafficPartial}, registered
	}
}

// unattributedIn returns the backends that send traffic to no member.
func unattributedIn(members []member, backends []Backend) []Backend {
	var unattributed []Backend
	for _, b := range backends {
		if !slices.ContainsFunc(members, func(m member) bool { return m.hasAddress(b) }) {
			unattributed = append(unattributed, b)
		}
	}
	return unattributed
}
