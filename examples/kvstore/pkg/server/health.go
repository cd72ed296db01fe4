package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/podops-dev/podops/examples/kvstore/pkg/api"
	"github.com/podops-dev/podops/examples/kvstore/pkg/node"
	"github.com/podops-dev/podops/examples/kvstore/pkg/pause"
)

// Fault is a hook for tests of upgrades: a version that does not work.
type Fault string

// The faults.
const (
	NoFault        Fault = ""
	FaultUnhealthy Fault = "health" // /healthz fails
	FaultUnready   Fault = "ready"  // /readyz fails
)

// FaultOf returns the fault of a version: "1.4.0-bad" is unhealthy, "1.4.0-unready" does not
// become ready.
func FaultOf(version string) Fault {
	switch {
	case strings.HasSuffix(version, "-bad"):
		return FaultUnhealthy
	case strings.HasSuffix(version, "-unready"):
		return FaultUnready
	default:
		return NoFault
	}
}

const (
	// readyTimeout bounds the wait of /readyz.
	readyTimeout = 800 * time.Millisecond

	// healthTimeout bounds the read of /healthz.
	healthTimeout = 3 * time.Second

	// healthKey is the key that /healthz reads. It need not exist.
	healthKey = "healthz"

	maxStatusBytes = 64 << 10
)

func (s *Server) live(w http.ResponseWriter, _ *http.Request) { ok(w) }

func ok(w http.ResponseWriter) {
	answer{status: http.StatusOK, contentType: "text/plain", body: []byte("ok\n")}.writeTo(w)
}

func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	if reason := s.notReady(r.Context()); reason != "" {
		writeError(w, http.StatusServiceUnavailable, api.Unavailable, reason)
		return
	}
	ok(w)
}

// notReady returns why the member is not ready, and an empty string if it is. It is ready
// when
//
//   - it is not about to end,
//   - its cluster has a leader, and it has applied the commands that the leader has committed
//     at the moment of the call, and
//   - it votes.
func (s *Server) notReady(ctx context.Context) string {
	ctx, stop := context.WithTimeout(ctx, readyTimeout)
	defer stop()
	if s.draining.Load() {
		return "the member is about to end"
	}
	if s.options.Fault == FaultUnready {
		return "the fault " + string(FaultUnready) + " is set"
	}
	commit, err := s.committed(ctx)
	if err != nil {
		return err.Error()
	}
	for s.node.Applied() < commit {
		if !pause.For(ctx, attemptInterval) {
			return fmt.Sprintf("the member has applied %d of %d commands", s.node.Applied(), commit)
		}
	}
	// Before it has caught up, it has the members of an earlier time.
	status, err := s.node.Status()
	if err != nil {
		return err.Error()
	}
	if voter, _ := status.IsMember(s.options.ID); !voter {
		return "the member has no vote"
	}
	return ""
}

// committed returns the log index up to which the leader has committed commands.
func (s *Server) committed(ctx context.Context) (uint64, error) {
	if s.node.IsLeader() {
		status, err := s.node.Status()
		return status.CommitIndex, err
	}
	status, err := s.leaderStatus(ctx)
	return status.CommitIndex, err
}

// leaderStatus returns the status of the leader.
func (s *Server) leaderStatus(ctx context.Context) (node.Status, error) {
	host := s.node.Leader()
	if host == "" {
		return node.Status{}, fmt.Errorf("%w: no leader is known", node.ErrUnavailable)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url(host, "/status?brief"), nil)
	if err != nil {
		return node.Status{}, fmt.Errorf("requesting the status of %s: %w", host, err)
	}
	response, err := s.leader.Do(request)
	if err != nil {
		return node.Status{}, fmt.Errorf("requesting the status of %s: %w", host, err)
	}
	defer response.Body.Close()
	var status api.Status
	if err := json.NewDecoder(io.LimitReader(response.Body, maxStatusBytes)).Decode(&status); err != nil {
		return node.Status{}, fmt.Errorf("decoding the status of %s: %w", host, err)
	}
	return status.Status, nil
}

// healthy reads a key through this member, as clients do.
func (s *Server) healthy(w http.ResponseWriter, r *http.Request) {
	if s.options.Fault == FaultUnhealthy {
		writeError(w, http.StatusServiceUnavailable, api.Unavailable, "the fault "+string(FaultUnhealthy)+" is set")
		return
	}
	ctx, stop := context.WithTimeout(r.Context(), healthTimeout)
	defer stop()
	request := r.Clone(ctx)
	request.URL = &url.URL{Path: "/kv/" + healthKey}
	if a := s.do(request, s.readOf(healthKey)); a.status != http.StatusOK && a.status != http.StatusNotFound {
		writeError(w, http.StatusServiceUnavailable, api.Unavailable, fmt.Sprintf("a read through this member: %d %s", a.status, a.body))
		return
	}
	ok(w)
}

func (s *Server) status(w http.ResponseWriter, r *http.Request) {
	status, err := s.node.Status()
	if err != nil {
		writeError(w, http.StatusInternalServerError, api.Unavailable, err.Error())
		return
	}
	full := api.Status{Status: status, Version: s.options.Version}
	if !r.URL.Query().Has("brief") { // readiness depends on the leader's brief status
		full.Reason = s.notReady(r.Context())
		full.Ready = full.Reason == ""
	}
	jsonAnswer(0, full).writeTo(w)
}

func (s *Server) members(w http.ResponseWriter, _ *http.Request) {
	status, err := s.node.Status()
	if err != nil {
		writeError(w, http.StatusInternalServerError, api.Unavailable, err.Error())
		return
	}
	jsonAnswer(0, status.Members).writeTo(w)
}
