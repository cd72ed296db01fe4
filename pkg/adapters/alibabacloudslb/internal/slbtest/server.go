// Package slbtest is a load balancer of Alibaba Cloud for tests: a local HTTP server with
// the actions of the SLB API (2014-05-15) that the adapter uses, a state in memory, and
// injected faults.
package slbtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
)

// AccessKeyID and AccessKeySecret are the credentials of clients. The server checks that a
// request has a signature, and not its value.
const (
	AccessKeyID     = "LTAItestkey0123456789"
	AccessKeySecret = "test-secret-9876543210"
)

// maxBackends is the documented limit of one call.
const maxBackends = 20

// Backend is a backend server, as the API encodes it.
type Backend struct {
	ServerID    string `json:"ServerId"`
	ServerIP    string `json:"ServerIp,omitempty"`
	Type        string `json:"Type"`
	Port        int    `json:"Port,omitempty"`
	Weight      int    `json:"Weight"`
	Description string `json:"Description,omitempty"`
}

// Call is one request to the server.
type Call struct {
	Action string
	// Target is the group or load balancer of the request.
	Target string
	// Backends are the backends in the request.
	Backends []Backend
}

// Server is the load balancer. It is safe for concurrent use.
type Server struct {
	// URL is the endpoint.
	URL string

	mu       sync.Mutex
	requests int
	calls    []Call
	faults   []*Fault
	released chan struct{}

	balancers map[string]*balancer
	groups    map[string]*group
	// shown, when it is not nil, is the state that reads return instead of groups.
	shown map[string]*group

	delayed bool
	pending []func()

	// fewest counts, by group, the servers with traffic at their lowest since the last call to Fewest.
	fewest map[string]int
}

type balancer struct {
	inNoGroup []Backend
	groups    []string
}

type group struct {
	name     string
	backends []Backend
}

// New starts a server that ends with the test.
func New(t testing.TB) *Server {
	t.Helper()
	s := &Server{released: make(chan struct{}), balancers: map[string]*balancer{}, groups: map[string]*group{}}
	listener := httptest.NewServer(http.HandlerFunc(s.serve))
	s.URL = listener.URL
	t.Cleanup(func() {
		s.Mend()
		listener.Close()
	})
	return s
}

// AddLoadBalancer creates a load balancer with the given backends in its default group.
func (s *Server) AddLoadBalancer(id string, inNoGroup ...Backend) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.balancers[id] = &balancer{inNoGroup: inNoGroup}
}

// RemoveLoadBalancer removes a load balancer and its groups, if it exists.
func (s *Server) RemoveLoadBalancer(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lb := s.balancers[id]
	if lb == nil {
		return
	}
	for _, groupID := range lb.groups {
		delete(s.groups, groupID)
	}
	delete(s.balancers, id)
}

// AddGroup creates a vServer group. loadBalancer may be empty.
func (s *Server) AddGroup(loadBalancer, id, name string, backends ...Backend) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.groups[id] = &group{name: name, backends: backends}
	if lb := s.balancers[loadBalancer]; lb != nil {
		lb.groups = append(lb.groups, id)
	}
}

// RemoveGroup removes a vServer group.
func (s *Server) RemoveGroup(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.groups, id)
}

// SetBackends changes a vServer group, as the cloud controller manager or a user would.
func (s *Server) SetBackends(id string, backends ...Backend) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.groups[id].backends = backends
}

// Backends returns the actual backends of a group, in the order in which they were added.
func (s *Server) Backends(id string) []Backend {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.groups[id] == nil {
		return nil
	}
	return append([]Backend(nil), s.groups[id].backends...)
}

// Fewest returns how many servers in a group had a weight, at their lowest since the last call.
func (s *Server) Fewest(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	fewest, watched := s.fewest[id]
	now := s.serving(id)
	if s.fewest == nil {
		s.fewest = map[string]int{}
	}
	s.fewest[id] = now
	if !watched {
		return now
	}
	return min(fewest, now)
}

// serving returns how many servers in a group have a weight.
func (s *Server) serving(id string) int {
	servers := map[string]bool{}
	if g := s.groups[id]; g != nil {
		for _, b := range g.backends {
			if b.Weight > 0 {
				servers[b.ServerID] = true
			}
		}
	}
	return len(servers)
}

// Calls returns the requests that were carried out, in order.
func (s *Server) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Call(nil), s.calls...)
}

// Requests returns how many requests arrived, including rejected requests.
func (s *Server) Requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	action := r.Header.Get("x-acs-action")
	if action == "" {
		action = r.FormValue("Action")
	}
	fault, released, id := s.arrived(action, r)
	if fault != nil && fault.Hang {
		select {
		case <-released:
		case <-r.Context().Done():
		}
		return
	}
	var answer map[string]any
	var refusal *Refusal
	if fault == nil || fault.AfterEffect {
		answer, refusal = s.act(action, r)
	}
	if fault != nil && refusal == nil {
		refusal = &fault.Refusal
	}
	if refusal != nil {
		refusal.write(w, id)
		return
	}
	answer["RequestId"] = id
	w.Header().Set("Content-Type", "application/json;charset=utf-8")
	// The client may have disconnected.
	_ = json.NewEncoder(w).Encode(answer)
}

// arrived counts a request and returns the fault that applies to it.
func (s *Server) arrived(action string, r *http.Request) (*Fault, chan struct{}, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	return s.strike(action, r.FormValue("BackendServers")), s.released, fmt.Sprintf("REQUEST-%d", s.requests)
}

func (s *Server) act(action string, r *http.Request) (map[string]any, *Refusal) {
	if refusal := signed(r); refusal != nil {
		return nil, refusal
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	target := r.FormValue("VServerGroupId") + r.FormValue("LoadBalancerId")
	backends, refusal := decodeBackends(r.FormValue("BackendServers"))
	if refusal != nil {
		return nil, refusal
	}
	s.calls = append(s.calls, Call{Action: action, Target: target, Backends: backends})
	switch action {
	case "DescribeLoadBalancerAttribute":
		return s.describeLoadBalancer(target)
	case "DescribeVServerGroups":
		return s.describeGroups(target)
	case "DescribeVServerGroupAttribute":
		return s.describeGroup(target)
	case "AddVServerGroupBackendServers":
		return s.add(target, backends)
	case "SetVServerGroupAttribute":
		return s.setWeight(target, backends)
	case "RemoveVServerGroupBackendServers":
		return s.remove(target, backends)
	default:
		return nil, &Refusal{Status: http.StatusNotFound, Code: "InvalidAction.NotFound", Message: "Specified api is not found, please check your url and method."}
	}
}

// signed rejects requests without a signature, in the header or, as in older versions, in
// the query.
func signed(r *http.Request) *Refusal {
	if r.Header.Get("Authorization") != "" || r.FormValue("Signature") != "" {
		return nil
	}
	return &Refusal{Status: http.StatusBadRequest, Code: "IncompleteSignature", Message: "The request signature does not conform to Aliyun standards."}
}

// decodeBackends decodes the parameter, whose numbers are strings.
func decodeBackends(text string) ([]Backend, *Refusal) {
	if text == "" {
		return nil, nil
	}
	invalid := &Refusal{Status: http.StatusBadRequest, Code: "InvalidParameter", Message: "The specified parameter BackendServers is not valid."}
	var wire []struct {
		ServerID    string `json:"ServerId"`
		ServerIP    string `json:"ServerIp"`
		Type        string
		Port        string
		Weight      string
		Description string
	}
	if err := json.Unmarshal([]byte(text), &wire); err != nil || len(wire) == 0 || len(wire) > maxBackends {
		return nil, invalid
	}
	var backends []Backend
	for _, b := range wire {
		port, portErr := strconv.Atoi(b.Port)
		weight, weightErr := strconv.Atoi(b.Weight)
		if portErr != nil || weightErr != nil || port < 1 || port > 65535 || weight < 0 || weight > 100 ||
			b.ServerID == "" || len(b.Description) > 80 {
			return nil, invalid
		}
		backends = append(backends, Backend{
			ServerID: b.ServerID, ServerIP: b.ServerIP, Type: b.Type, Port: port, Weight: weight, Description: b.Description,
		})
	}
	return backends, nil
}
