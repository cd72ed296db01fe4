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
	// Body is sent as it is, instead of code and message.
	Body string
}

// Throttled is how the API asks to come back later.
func Throttled() Refusal {
	return Refusal{Status: http.StatusBadRequest, Code: "Throttling.User", Message: "Request was denied due to user flow control."}
}

// Busy is how the API says that it still works on the previous change.
func Busy() Refusal {
	return Refusal{Status: http.StatusBadRequest, Code: "BackendServer.configuring", Message: "The previous configuration is pending; please try again later."}
}

// Broken is a gateway that does not speak JSON.
func Broken() Refusal {
	return Refusal{Status: http.StatusBadGateway, Body: "<html><body>502 Bad Gateway</body></html>"}
}

func (f *Refusal) write(w http.ResponseWriter, requestID string) {
	if f.Body != "" {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(f.Status)
		// Nobody is left to tell when the client is gone.
		_, _ = w.Write([]byte(f.Body))
		return
	}
	w.Header().Set("Content-Type", "application/json;charset=utf-8")
	w.WriteHeader(f.Status)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"RequestId": requestID, "HostId": "slb.aliyuncs.com", "Code": f.Code, "Message": f.Message, "Recommend": "https://error-center.aliyun.com",
	})
}

// Fault strikes requests.
type Fault struct {
	// Action that it strikes; empty strikes all.
	Action string
	// Server strikes requests whose backends have this server id or address.
	Server string
	// Times it strikes; 0 is until Mend.
	Times int

	Refusal Refusal
	// AfterEffect carries the request out before it is refused: a lost reply.
	AfterEffect bool
	// Hang answers nothing until Mend.
	Hang bool

	struck int
}

// Inject lets the server misbehave from now on. The first fault that fits strikes.
func (s *Server) Inject(fault Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, &fault)
}

// Lag lets reads of groups answer what is true now, until Mend.
func (s *Server) Lag() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shown = cloned(s.groups)
}

// Delay lets changes of groups be accepted and made in Settle only, until Mend.
func (s *Server) Delay() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delayed = true
}

// Settle makes the changes that were delayed.
func (s *Server) Settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, change := range s.pending {
		change()
	}
	s.pending = nil
}

// Mend ends every fault. Changes that were delayed still wait for Settle.
func (s *Server) Mend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults, s.shown, s.delayed = nil, nil, false
	close(s.released)
	s.released = make(chan struct{})
}

// Struck is how often faults have struck since Mend.
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
