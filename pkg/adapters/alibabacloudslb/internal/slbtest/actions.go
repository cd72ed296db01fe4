package slbtest

import (
	"maps"
	"net/http"
	"slices"
)

func (s *Server) describeLoadBalancer(id string) (map[string]any, *Refusal) {
	lb := s.balancers[id]
	if lb == nil {
		return nil, &Refusal{Status: http.StatusNotFound, Code: "InvalidLoadBalancerId.NotFound", Message: "The specified LoadBalancerId does not exist."}
	}
	return map[string]any{
		"LoadBalancerId": id,
		"BackendServers": map[string]any{"BackendServer": append([]Backend{}, lb.inNoGroup...)},
	}, nil
}

func (s *Server) describeGroups(id string) (map[string]any, *Refusal) {
	lb := s.balancers[id]
	if lb == nil {
		return nil, &Refusal{Status: http.StatusNotFound, Code: "InvalidLoadBalancerId.NotFound", Message: "The specified LoadBalancerId does not exist."}
	}
	list := []map[string]any{}
	for _, groupID := range lb.groups {
		if g := s.groups[groupID]; g != nil {
			list = append(list, map[string]any{"VServerGroupId": groupID, "VServerGroupName": g.name, "ServerCount": len(g.backends)})
		}
	}
	return map[string]any{"VServerGroups": map[string]any{"VServerGroup": list}}, nil
}

func (s *Server) describeGroup(id string) (map[string]any, *Refusal) {
	groups := s.groups
	if s.shown != nil {
		groups = s.shown
	}
	g := groups[id]
	if g == nil {
		return nil, noGroup()
	}
	return describe(id, g), nil
}

func describe(id string, g *group) map[string]any {
	return map[string]any{
		"VServerGroupId":   id,
		"VServerGroupName": g.name,
		"BackendServers":   map[string]any{"BackendServer": append([]Backend{}, g.backends...)},
	}
}

// add is rejected as a whole for a server that exists, or that is invalid.
func (s *Server) add(id string, backends []Backend) (map[string]any, *Refusal) {
	g := s.groups[id]
	if g == nil {
		return nil, noGroup()
	}
	for _, b := range backends {
		if slices.ContainsFunc(g.backends, b.same) {
			return nil, &Refusal{Status: http.StatusBadRequest, Code: "VServerGroupProcessing.Duplicate", Message: "The backend server is there already."}
		}
	}
	s.make(func() {
		for _, b := range backends {
			g.backends = append(slices.DeleteFunc(slices.Clone(g.backends), b.same), b)
		}
	})
	return describe(id, g), nil
}

func (s *Server) setWeight(id string, backends []Backend) (map[string]any, *Refusal) {
	g := s.groups[id]
	if g == nil {
		return nil, noGroup()
	}
	for _, b := range backends {
		if !slices.ContainsFunc(g.backends, b.same) {
			return nil, noServer()
		}
	}
	s.make(func() {
		changed := slices.Clone(g.backends)
		for _, b := range backends {
			if at := slices.IndexFunc(changed, b.same); at >= 0 {
				changed[at].Weight = b.Weight
			}
		}
		g.backends = changed
	})
	return describe(id, g), nil
}

func (s *Server) remove(id string, backends []Backend) (map[string]any, *Refusal) {
	g := s.groups[id]
	if g == nil {
		return nil, noGroup()
	}
	for _, b := range backends {
		if !slices.ContainsFunc(g.backends, b.same) {
			return nil, noServer()
		}
	}
	s.make(func() {
		for _, b := range backends {
			g.backends = slices.DeleteFunc(slices.Clone(g.backends), b.same)
		}
	})
	return describe(id, g), nil
}

// make makes a change of a group, at once or in Settle.
func (s *Server) make(change func()) {
	if s.delayed {
		s.pending = append(s.pending, change)
		return
	}
	change()
	for id := range s.fewest {
		s.fewest[id] = min(s.fewest[id], s.serving(id))
	}
}

// same reports whether the API considers the two one server.
func (b Backend) same(other Backend) bool {
	return b.ServerID == other.ServerID && b.ServerIP == other.ServerIP && b.Port == other.Port
}

func noGroup() *Refusal {
	return &Refusal{Status: http.StatusBadRequest, Code: "InvalidParameter", Message: "The specified VServerGroupId does not exist."}
}

func noServer() *Refusal {
	return &Refusal{Status: http.StatusBadRequest, Code: "InvalidBackendServers.NotFound", Message: "The specified backend server is not in the group."}
}

// cloned copies groups: backends are replaced and not changed, so they are shared.
func cloned(groups map[string]*group) map[string]*group {
	copied := maps.Clone(groups)
	for id, g := range copied {
		one := *g
		one.backends = slices.Clone(g.backends)
		copied[id] = &one
	}
	return copied
}
