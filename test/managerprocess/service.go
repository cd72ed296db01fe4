package managerprocess

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"
)

// Endpoint is a manager behind a Service.
type Endpoint struct {
	*Process
	Webhook string // address of its webhook server
}

// Service forwards connections to managers that are ready, as a Service does to the endpoints of
// a Deployment: an API server whose manager ended reaches another manager.
type Service struct {
	listener net.Listener
	running  func() []Endpoint

	mu     sync.Mutex
	lags   bool
	routes []Endpoint // while it lags
}

// OpenService returns a Service for the managers that running returns, oldest first. It listens at a
// local address until Close.
func OpenService(running func() []Endpoint) (*Service, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for webhooks: %w", err)
	}
	s := &Service{listener: listener, running: running}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // closed
			}
			go s.pass(client)
		}
	}()
	return s, nil
}

// URL returns the address as a --webhook-url.
func (s *Service) URL() string { return "https://" + s.listener.Addr().String() }

// Close ends the listener. Connections that are open stay.
func (s *Service) Close() error { return s.listener.Close() }

// Lag makes the Service update its endpoints only once per interval, as kube-proxy does, until stop is called.
// Meanwhile connections go to the old endpoints, whether they still listen or not.
func (s *Service) Lag(interval time.Duration) (stop func()) {
	s.update()
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		pace := time.NewTicker(interval)
		defer pace.Stop()
		for {
			select {
			case <-quit:
				return
			case <-pace.C:
				s.update()
			}
		}
	}()
	return func() {
		close(quit)
		<-ended
		s.mu.Lock()
		defer s.mu.Unlock()
		s.lags, s.routes = false, nil
	}
}

// update routes to the managers that are ready now.
func (s *Service) update() {
	ready := s.ready()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lags, s.routes = true, ready
}

// ready returns the managers that are ready, oldest first.
func (s *Service) ready() []Endpoint {
	return slices.DeleteFunc(slices.Clone(s.running()), func(e Endpoint) bool { return e.Ready() != nil })
}

// pass forwards one connection to a manager.
func (s *Service) pass(client net.Conn) {
	defer client.Close()
	backend := s.dial()
	if backend == nil {
		return
	}
	defer backend.Close()
	ended := make(chan struct{}, 2)
	carry := func(to, from net.Conn) {
		_, _ = io.Copy(to, from) // either end may close at any time
		ended <- struct{}{}
	}
	go carry(backend, client)
	go carry(client, backend)
	<-ended
}

// dial connects to an endpoint while the Service lags, and to the oldest ready manager otherwise. It
// returns nil when that fails.
func (s *Service) dial() net.Conn {
	s.mu.Lock()
	lags, routes := s.lags, s.routes
	s.mu.Unlock()
	if lags {
		if len(routes) == 0 {
			return nil
		}
		routes = []Endpoint{routes[rand.IntN(len(routes))]}
	} else {
		routes = s.ready()
	}
	for _, e := range routes {
		if backend, err := net.Dial("tcp", e.Webhook); err == nil {
			return backend
		}
	}
	return nil
}
