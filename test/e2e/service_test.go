package e2e_test

import (
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// service forwards connections to managers that are ready, as a Service does to the
// endpoints of a Deployment: an API server whose manager ended reaches another
// manager.
type service struct {
	listener net.Listener
	running  func() []*manager

	// endpoints is set while the Service reflects readiness late, as a real one does.
	endpoints atomic.Pointer[[]*manager]
}

// openService listens at a local address until the suite ends.
func openService(running func() []*manager) *service {
	GinkgoHelper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	s := &service{listener: listener, running: running}
	DeferCleanup(listener.Close)
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // closed
			}
			go s.pass(client)
		}
	}()
	return s
}

func (s *service) url() string { return "https://" + s.listener.Addr().String() }

// pass forwards one connection to a manager.
func (s *service) pass(client net.Conn) {
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

// lag makes the Service update its endpoints only once per interval until the scenario
// ends. Meanwhile connections go to the old endpoints, whether they still listen or not.
func (s *service) lag(interval time.Duration) {
	GinkgoHelper()
	look := func() {
		ready := slices.DeleteFunc(s.running(), func(m *manager) bool { return m.Ready() != nil })
		s.endpoints.Store(&ready)
	}
	look()
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			case <-time.After(interval):
				look()
			}
		}
	}()
	DeferCleanup(func() {
		close(stop)
		<-ended
		s.endpoints.Store(nil)
	})
}

// dial connects to the oldest manager that is ready; nil when no manager is ready.
func (s *service) dial() net.Conn {
	if endpoints := s.endpoints.Load(); endpoints != nil {
		if len(*endpoints) == 0 {
			return nil
		}
		backend, err := net.Dial("tcp", (*endpoints)[rand.IntN(len(*endpoints))].webhook)
		if err != nil {
			return nil
		}
		return backend
	}
	for _, m := range s.running() {
		if m.Ready() != nil {
			continue
		}
		if backend, err := net.Dial("tcp", m.webhook); err == nil {
			return backend
		}
	}
	return nil
}
