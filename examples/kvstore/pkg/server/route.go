package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/podops-dev/podops/examples/kvstore/pkg/api"
	"github.com/podops-dev/podops/examples/kvstore/pkg/hosts"
	"github.com/podops-dev/podops/examples/kvstore/pkg/machine"
	"github.com/podops-dev/podops/examples/kvstore/pkg/node"
	"github.com/podops-dev/podops/examples/kvstore/pkg/pause"
)

const (
	// attemptTimeout bounds one attempt with one leader: a leader that does not respond
	// may have been replaced.
	attemptTimeout = 2 * time.Second

	// attemptInterval is the pause before the next attempt.
	attemptInterval = 10 * time.Millisecond

	// maxAnswerBytes bounds the answer of a leader.
	maxAnswerBytes = machine.MaxValueBytes + 64<<10

	maxIdlePerHost = 64
)

// call is a request that the leader serves.
type call struct {
	body []byte
	// repeatable is set for a call with the same effect when it is made twice.
	repeatable bool
	local      func(context.Context) (answer, error)
}

func newClient(resolver hosts.Resolver) *http.Client {
	return &http.Client{
		Transport:     &http.Transport{DialContext: resolver.Dial, MaxIdleConnsPerHost: maxIdlePerHost, IdleConnTimeout: time.Minute},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// route serves a call here if this member leads, and at the leader otherwise. During a
// change of leaders it is attempted until RequestTimeout, as long as a call that is
// not repeatable has certainly had no effect.
func (s *Server) route(w http.ResponseWriter, r *http.Request, c call) { s.do(r, c).writeTo(w) }

// do returns the answer to a call.
func (s *Server) do(r *http.Request, c call) answer {
	ctx, stop := context.WithTimeout(r.Context(), api.RequestTimeout)
	defer stop()
	forwarded := r.Header.Get(api.HeaderForwarded) != ""
	for {
		a, err := s.attempt(ctx, r, c, forwarded)
		if err == nil {
			return a
		}
		status, code := classify(err)
		final := forwarded || code == api.Invalid || (code == api.Unknown && !c.repeatable)
		if final || !pause.For(ctx, attemptInterval) {
			return failure(status, code, err.Error())
		}
	}
}

// attempt makes a call once.
func (s *Server) attempt(ctx context.Context, r *http.Request, c call, forwarded bool) (answer, error) {
	ctx, stop := context.WithTimeout(ctx, attemptTimeout)
	defer stop()
	if s.node.IsLeader() {
		a, err := c.local(ctx)
		if err == nil {
			a.leader, a.term = s.options.ID, strconv.FormatUint(s.node.Term(), 10)
		}
		return a, err
	}
	if forwarded {
		return answer{}, node.ErrNotLeader
	}
	leader := s.node.Leader()
	if leader == "" {
		return answer{}, fmt.Errorf("%w: no leader is known", node.ErrUnavailable)
	}
	return s.forward(ctx, r, c, leader)
}

// forward makes a call at the leader.
func (s *Server) forward(ctx context.Context, r *http.Request, c call, leader string) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, r.Method, s.url(leader, r.URL.RequestURI()), bytes.NewReader(c.body))
	if err != nil {
		return answer{}, fmt.Errorf("%w: %w", machine.ErrInvalid, err)
	}
	for _, name := range []string{"If-Match", api.HeaderClient, api.HeaderSeq} {
		if value := r.Header.Get(name); value != "" {
			request.Header.Set(name, value)
		}
	}
	request.Header.Set(api.HeaderForwarded, s.options.ID)
	response, err := s.leader.Do(request)
	if err != nil {
		return answer{}, unreachable(leader, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes))
	if err != nil {
		return answer{}, fmt.Errorf("%w: reading the answer of %s: %w", node.ErrUnknown, leader, err)
	}
	if response.StatusCode == http.StatusServiceUnavailable {
		return answer{}, rejected(leader, body)
	}
	revision, _ := strconv.ParseUint(response.Header.Get(api.HeaderRevision), 10, 64) // an answer without the header has revision 0
	return answer{
		status: response.StatusCode, revision: revision, contentType: response.Header.Get("Content-Type"), body: body,
		leader: response.Header.Get(api.HeaderLeader), term: response.Header.Get(api.HeaderTerm),
	}, nil
}

// unreachable returns the error of a request without an answer: without a connection it
// had no effect.
func unreachable(leader string, err error) error {
	var dial *net.OpError
	if errors.Is(err, hosts.ErrUnknown) || errors.As(err, &dial) && dial.Op == "dial" {
		return fmt.Errorf("%w: forwarding to %s: %w", node.ErrUnavailable, leader, err)
	}
	return fmt.Errorf("%w: forwarding to %s: %w", node.ErrUnknown, leader, err)
}

// rejected returns the error of an answer of the leader.
func rejected(leader string, body []byte) error {
	var e api.Error
	if err := json.Unmarshal(body, &e); err != nil {
		return fmt.Errorf("%w: forwarding to %s: %w", node.ErrUnknown, leader, err)
	}
	of := node.ErrUnknown
	if e.Code == api.NotLeader || e.Code == api.Unavailable || e.Code == api.Busy {
		of = node.ErrUnavailable
	}
	return fmt.Errorf("%w: %s: %s", of, leader, e.Message)
}

// url returns the URL of a path at a member.
func (s *Server) url(host, path string) string {
	return "http://" + net.JoinHostPort(host, strconv.Itoa(s.options.Port)) + path
}
