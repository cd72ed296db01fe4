package admission

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/podops-dev/podops/pkg/webhooks/clientauth"
)

// shutdownTimeout is the time that running reviews may take to end.
const shutdownTimeout = 15 * time.Second

var (
	errRefused = errors.New("dial tcp: connect: connection refused")
	errReset   = errors.New("read tcp: connection reset by peer")
	errDidHang = errors.New("the manager hangs")
)

// Server is the webhook server of a manager. It listens on no port: a Chain sends it reviews. Like a pod behind a
// Service it receives them from the moment when it is ready, and while it does not listen it refuses them.
type Server struct {
	killed context.Context
	kill   context.CancelCauseFunc

	mu        sync.Mutex
	handlers  map[string]http.Handler
	listening bool
	ready     bool
	hanging   bool
	running   int
	idle      *sync.Cond
}

var _ webhook.Server = (*Server)(nil)

// NewServer returns a Server that neither listens nor is ready. It belongs to the bubble that it is made in.
func NewServer() *Server {
	s := &Server{handlers: map[string]http.Handler{}}
	s.idle = sync.NewCond(&s.mu)
	s.killed, s.kill = context.WithCancelCause(context.Background())
	return s
}

// NeedLeaderElection implements webhook.Server.
func (*Server) NeedLeaderElection() bool { return false }

// Register implements webhook.Server.
func (s *Server) Register(path string, handler http.Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handlers[path] != nil {
		panic(fmt.Sprintf("the path %s is registered already", path))
	}
	s.handlers[path] = handler
}

// WebhookMux implements webhook.Server. There is no mux.
func (*Server) WebhookMux() *http.ServeMux { return nil }

// Start listens until ctx ends, and then waits for the running reviews.
func (s *Server) Start(ctx context.Context) error {
	s.listen(true)
	<-ctx.Done()
	s.listen(false)
	defer time.AfterFunc(shutdownTimeout, func() { s.kill(errReset) }).Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.running > 0 {
		s.idle.Wait()
	}
	return nil
}

func (s *Server) listen(listening bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listening = listening && s.killed.Err() == nil
}

// StartedChecker returns a check that fails until the server listens.
func (s *Server) StartedChecker() healthz.Checker {
	return func(*http.Request) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.listening {
			return errors.New("the webhook server does not listen yet")
		}
		return nil
	}
}

// Ready sets whether the Service of the webhooks has the manager among its endpoints. A manager becomes ready when its
// caches are synced, and stops being ready some time after its end.
func (s *Server) Ready(ready bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = ready
}

func (s *Server) isReady() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ready
}

// Hang sets whether new reviews are never answered.
func (s *Server) Hang(hanging bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hanging = hanging
}

// Kill ends the server like the process of a manager that is killed: running reviews end without an answer.
func (s *Server) Kill() {
	s.kill(errReset)
	s.listen(false)
}

// serve sends a review to the handler of a path. Every review counts as one of an API server.
func (s *Server) serve(ctx context.Context, path string, body []byte) ([]byte, error) {
	handler, err := s.begin(path)
	if err != nil {
		if errors.Is(err, errDidHang) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answered := make(chan *httptest.ResponseRecorder, 1)
	go func() {
		defer s.end()
		request := httptest.NewRequestWithContext(clientauth.WithVerified(ctx, true), http.MethodPost, path, bytes.NewReader(body))
		request.Header.Set("Content-Type", runtime.ContentTypeJSON)
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, request)
		answered <- recorder
	}()
	select {
	case recorder := <-answered:
		if recorder.Code != http.StatusOK {
			return nil, fmt.Errorf("the server answers %d: %s", recorder.Code, recorder.Body)
		}
		return recorder.Body.Bytes(), nil
	case <-s.killed.Done():
		return nil, context.Cause(s.killed)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// begin returns the handler of a path for a review that end ends.
func (s *Server) begin(path string) (http.Handler, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.listening:
		return nil, errRefused
	case s.hanging:
		return nil, errDidHang
	case s.handlers[path] == nil:
		return nil, fmt.Errorf("the server could not find the requested resource %s", path)
	}
	s.running++
	return s.handlers[path], nil
}

func (s *Server) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	s.idle.Broadcast()
}
