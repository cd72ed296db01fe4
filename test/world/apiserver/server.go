package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/sets"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
)

const (
	// requestTimeout is the time that a request other than a watch may take.
	requestTimeout = time.Minute
	// serverUser is the user of the requests that the server makes to itself.
	serverUser = "system:apiserver"
)

// Server is an API server in memory.
type Server struct {
	options   Options
	database  *database
	resolver  *request.RequestInfoFactory
	handler   http.Handler
	writes    *writes
	converter converter

	mu       sync.Mutex
	requests map[requestKey]int
}

type requestKey struct{ user, verb, resource string }

// New returns a Server with the namespaces default and kube-system. It panics on definitions that cannot be served.
// It seeds the generator of the names that Kubernetes generates, which belongs to the process.
func New(options Options) *Server {
	s, err := newServer(options)
	if err != nil {
		panic(fmt.Sprintf("apiserver: %v", err))
	}
	return s
}

func newServer(options Options) (*Server, error) {
	if options.History == 0 {
		options.History = 1000
	}
	utilrand.Seed(int64(options.Seed)) //nolint:gosec // A seed may wrap.
	types, err := newConverter()
	if err != nil {
		return nil, err
	}
	s := &Server{
		options:   options,
		converter: types,
		writes:    &writes{deliver: options.OnWrite},
		requests:  map[requestKey]int{},
		resolver: &request.RequestInfoFactory{
			APIPrefixes:          sets.NewString("api", "apis"),
			GrouplessAPIPrefixes: sets.NewString("api"),
		},
	}
	s.database = &database{tables: map[string]*table{}, history: options.History, committed: s.committed}
	handler, err := s.newHandler()
	if err != nil {
		return nil, fmt.Errorf("build the API: %w", err)
	}
	s.handler = handler
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem} {
		if err := s.createNamespace(name); err != nil {
			return nil, fmt.Errorf("create namespace %s: %w", name, err)
		}
	}
	return s, nil
}

// createNamespace creates a namespace as the server does for itself when it starts, without a delay.
func (s *Server) createNamespace(name string) error {
	body := fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, name)
	r, err := http.NewRequestWithContext(
		context.Background(), http.MethodPost, "http://apiserver/api/v1/namespaces", strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "kube-apiserver")
	info, err := s.resolver.NewRequestInfo(r)
	if err != nil {
		return err
	}
	response, err := s.answer(r, &call{user: &user.DefaultInfo{Name: serverUser}, info: info}, 0)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusCreated {
		return fmt.Errorf("answered %s", response.Status)
	}
	return response.Body.Close()
}

// SetAdmission sets the admission chain. It is called before the first request.
func (s *Server) SetAdmission(a Admission) { s.options.Admission = a }

// Config returns the configuration of a client of a user. Its requests are not limited.
func (s *Server) Config(name string, groups ...string) *rest.Config {
	info := &user.DefaultInfo{Name: name, Groups: append(append([]string{}, groups...), user.AllAuthenticated)}
	return &rest.Config{Host: "http://apiserver", QPS: -1, Transport: &transport{server: s, user: info}}
}

// Count returns the number of requests of a user so far. The resource may name a subresource, as in pods/status.
func (s *Server) Count(user, verb, resource string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[requestKey{user, verb, resource}]
}

// Counts returns the number of requests so far, by user, verb and resource, joined by spaces.
func (s *Server) Counts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := make(map[string]int, len(s.requests))
	for k, n := range s.requests {
		counts[k.user+" "+k.verb+" "+k.resource] = n
	}
	return counts
}

// count counts a request and returns its number.
func (s *Server) count(k requestKey) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests[k]++
	return s.requests[k]
}

// authorize decides about a request or an access review.
func (s *Server) authorize(
	_ context.Context, a authorizer.Attributes,
) (authorizer.Decision, string, error) {
	if s.options.Authorize == nil || a.GetUser().GetName() == serverUser || s.options.Authorize(a) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionDeny, "", nil
}

// transport carries the requests of one user to the server.
type transport struct {
	server *Server
	user   user.Info
}

// RoundTrip answers a request. Requests for resources take a while before and after they are carried out.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r = r.Clone(r.Context())
		r.Body = http.NoBody
	}
	info, err := t.server.resolver.NewRequestInfo(r)
	if err != nil {
		return nil, fmt.Errorf("resolve request: %w", err)
	}
	if !info.IsResourceRequest {
		return t.server.answer(r, t.call(info), 0)
	}
	c := t.call(info)
	n := t.server.count(requestKey{c.user.GetName(), info.Verb, c.target()})
	chances := t.server.chances(c.user.GetName(), info.Verb, c.target(), uint64(n)) //nolint:gosec // Never negative.
	if !sleep(r.Context(), chances.delay()) {
		return nil, context.Cause(r.Context())
	}
	switch {
	case info.Verb == "watch":
		return t.server.stream(r, c)
	case info.Resource == "events" && !c.reads() && t.server.options.WithoutEvents:
		return forgo(r, info)
	}
	return t.server.answer(r, c, chances.delay())
}

func (t *transport) call(info *request.RequestInfo) *call { return &call{user: t.user, info: info} }

// call is a request on its way through the server.
type call struct {
	user user.Info
	info *request.RequestInfo
	// changes is the number of changes that the request made.
	changes int
}

// target returns the resource of a request, with its subresource.
func (c *call) target() string {
	return strings.TrimSuffix(c.info.Resource+"/"+c.info.Subresource, "/")
}

// reads reports whether the request changes nothing by its nature.
func (c *call) reads() bool {
	switch c.info.Verb {
	case "get", "list", "watch":
		return true
	}
	return !c.info.IsResourceRequest
}

type callKey struct{}

// context returns the context of the handlers of a request.
func (c *call) context(ctx context.Context) context.Context {
	ctx = request.WithRequestInfo(ctx, c.info)
	ctx = request.WithUser(ctx, c.user)
	ctx = request.WithReceivedTimestamp(ctx, time.Now())
	// The handlers of patches need the context of an audit, which is of level None.
	ctx = audit.WithAuditContext(ctx)
	_ = audit.AuditContextFrom(ctx).Init(audit.RequestAuditConfig{Level: auditinternal.LevelNone}, nil)
	return context.WithValue(ctx, callKey{}, c)
}

// answer carries out a request and returns its response after a delay.
func (s *Server) answer(r *http.Request, c *call, delay time.Duration) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(c.context(r.Context()), requestTimeout)
	defer cancel()
	defer func() { _ = r.Body.Close() }()
	w := newBuffer()
	s.handler.ServeHTTP(w, r.WithContext(ctx))
	if !c.reads() && c.changes == 0 {
		s.writes.add(s.unchanged(c, w))
	}
	s.writes.flush()
	if !sleep(r.Context(), delay) {
		return nil, context.Cause(r.Context())
	}
	return w.response(r), nil
}

// stream begins a watch and returns its response as soon as it has begun.
func (s *Server) stream(r *http.Request, c *call) (*http.Response, error) {
	ctx, cancel := context.WithCancel(c.context(r.Context()))
	w := newPipe(cancel)
	context.AfterFunc(ctx, func() { w.abort(context.Cause(ctx)) })
	go func() {
		defer cancel()
		s.handler.ServeHTTP(w, r.WithContext(ctx))
		w.finish()
	}()
	select {
	case <-w.started:
		return w.response(r), nil
	case <-r.Context().Done():
		cancel()
		return nil, context.Cause(r.Context())
	}
}
