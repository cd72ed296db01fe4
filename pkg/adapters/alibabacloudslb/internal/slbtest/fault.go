package slbtest

import (
	"encoding/json"
	"net/http"
	"strings"
)

// Refusal is an answer with an error.
type Refusal struct {
	Status  int
	Code    string
	Message string
	// Body is the raw body, instead of code and message.
	Body string
}

// Throttled returns the answer of the API to too many calls.
func Throttled() Refusal {
	return Refusal{Status: http.StatusBadRequest, Code: "Throttling.User", Message: "Request was denied due to user flow control."}
}

// Busy returns the answer of the API while it applies the previous change.
func Busy() Refusal {
	return Refusal{Status: http.StatusBadRequest, Code: "BackendServer.configuring", Message: "The previous configuration is pending; please try again later."}
}

// Broken returns the answer of a gateway, which is not JSON.
func Broken() Refusal {
	return Refusal{Status: http.StatusBadGateway, Body: "<html><body>502 Bad Gateway</body></html>"}
}

func (f *Refusal) write(w http.ResponseWriter, requestID string) {
	if f.Body != "" {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(f.Status)
		// The client may have disconnected.
		_, _ = w.Write([]byte(f.Body))
		return
	}
	w.Header().Set("Content-Type", "application/json;charset=utf-8")
	w.WriteHeader(f.Status)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"RequestId": requestID, "HostId": "slb.aliyuncs.com", "Code": f.Code, "Message": f.Message, "Recommend": "https://error-center.aliyun.com",
	})
}

// Fault makes requests fail.
type Fault struct {
	// Action selects requests by action; empty selects all.
	Action string
	// Server selects requests whose backends have this server id or address.
	Server string
	// Times is the number of times that it applies; 0 is until Mend.
	Times int

	Refusal Refusal
	// AfterEffect carries the request out before it is rejected: a lost reply.
	AfterEffect bool
	// Hang answers nothing until Mend.
	Hang bool

	struck int
}

// Inject adds a fault. The first fault that matches a request applies.
func (s *Server) Inject(fault Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, &fault)
}

// Lag makes reads of groups return the present state, until Mend.
func (s *Server) Lag() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shown = cloned(s.groups)
}

// Delay makes changes of groups take effect only in Settle, until Mend.
func (s *Server) Delay() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delayed = true
}

// Settle applies the delayed changes.
func (s *Server) Settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, change := range s.pending {
		change()
	}
	s.pending = nil
}

// Mend ends every fault. Delayed changes still wait for Settle.
func (s *Server) Mend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults, s.shown, s.delayed = nil, nil, false
	close(s.released)
	s.released = make(chan struct{})
}

// Struck returns how often faults have applied since Mend.
func (s *Server) Struck() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	total := 0
	for _, fault := range s.faults {
		total += fault.struck
	}
	return total
}

func (s *Server) strike(action, backends string) *Fault {
	for _, fault := range s.faults {
		fits := (fault.Action == "" || fault.Action == action) &&
			(fault.Server == "" || strings.Contains(backends, `"`+fault.Server+`"`)) &&
			(fault.Times == 0 || fault.struck < fault.Times)
		if fits {
			fault.struck++
			copied := *fault
			return &copied
		}
	}
	return nil
}
