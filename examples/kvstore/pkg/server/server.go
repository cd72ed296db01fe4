package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/podops-dev/podops/examples/kvstore/pkg/api"
	"github.com/podops-dev/podops/examples/kvstore/pkg/hosts"
	"github.com/podops-dev/podops/examples/kvstore/pkg/machine"
	"github.com/podops-dev/podops/examples/kvstore/pkg/node"
	"github.com/podops-dev/podops/examples/kvstore/pkg/pause"
)

const (
	// maxInFlight bounds the requests at a time, probes aside.
	maxInFlight = 512

	// maxJoinBytes bounds the body of a request to join.
	maxJoinBytes = 4 << 10

	// writeTimeout bounds the time in which a client reads an answer, backupTimeout the
	// time for a backup.
	writeTimeout  = 30 * time.Second
	backupTimeout = 10 * time.Minute
)

// Options describe a Server.
type Options struct {
	ID       string
	Version  string
	Fault    Fault
	Port     int // of the API, the same for all members
	Resolver hosts.Resolver
	Log      *slog.Logger
}

// Server serves the API of one member. It is safe for concurrent use.
type Server struct {
	options  Options
	node     *node.Node
	leader   *http.Client // for requests to the leader
	inFlight chan struct{}
	draining atomic.Bool
}

// New returns the Server of a member.
func New(n *node.Node, o Options) *Server {
	return &Server{options: o, node: n, leader: newClient(o.Resolver), inFlight: make(chan struct{}, maxInFlight)}
}

// Drain makes the member not ready. It serves as before.
func (s *Server) Drain() { s.draining.Store(true) }

// Handler returns the handler of the API.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", s.live)
	mux.HandleFunc("GET /readyz", s.ready)
	mux.HandleFunc("GET /healthz", s.healthy)
	mux.HandleFunc("GET /status", s.status)
	mux.HandleFunc("GET /members", s.members)
	mux.Handle("POST /leader/transfer", s.limited(s.transfer))
	mux.Handle("POST /members", s.limited(s.join))
	mux.Handle("DELETE /members/{id}", s.limited(s.remove))
	mux.Handle("GET /backup", s.limited(s.backup))
	mux.Handle("GET /kv/{key}", s.limited(s.read))
	mux.Handle("PUT /kv/{key}", s.limited(s.write(machine.Put)))
	mux.Handle("POST /kv/{key}", s.limited(s.write(machine.Append)))
	mux.Handle("DELETE /kv/{key}", s.limited(s.write(machine.Delete)))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(api.HeaderMember, s.options.ID)
		w.Header().Set(api.HeaderVersion, s.options.Version)
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)) // every connection of net/http supports it
		mux.ServeHTTP(w, r)
	})
}

// limited rejects requests beyond maxInFlight.
func (s *Server) limited(handler http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case s.inFlight <- struct{}{}:
			defer func() { <-s.inFlight }()
			handler(w, r)
		default:
			writeError(w, http.StatusServiceUnavailable, api.Busy, "too many requests at a time")
		}
	})
}

func (s *Server) read(w http.ResponseWriter, r *http.Request) {
	s.route(w, r, s.readOf(r.PathValue("key")))
}

// readOf returns the call that reads a key.
func (s *Server) readOf(key string) call {
	return call{repeatable: true, local: func(ctx context.Context) (answer, error) {
		entry, err := s.node.Read(ctx, key)
		if err != nil {
			return answer{}, err
		}
		if entry.Revision == 0 {
			return failure(http.StatusNotFound, api.NotFound, "no such key"), nil
		}
		return answer{status: http.StatusOK, revision: entry.Revision, contentType: "application/octet-stream", body: entry.Value}, nil
	}}
}

func (s *Server) write(op machine.Op) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := readBody(w, r, machine.MaxValueBytes)
		if err != nil {
			writeError(w, http.StatusRequestEntityTooLarge, api.Invalid, err.Error())
			return
		}
		command, err := commandOf(r, op, body)
		if err == nil {
			err = command.Validate()
		}
		if err != nil {
			writeError(w, http.StatusBadRequest, api.Invalid, err.Error())
			return
		}
		s.route(w, r, call{body: body, repeatable: command.Client != "", local: func(ctx context.Context) (answer, error) {
			result, err := s.node.Apply(ctx, command)
			if err != nil {
				return answer{}, err
			}
			return written(result), nil
		}})
	}
}

// commandOf returns the command of a request.
func commandOf(r *http.Request, op machine.Op, body []byte) (machine.Command, error) {
	c := machine.Command{Op: op, Key: r.PathValue("key"), Value: body, Client: r.Header.Get(api.HeaderClient)}
	if seq := r.Header.Get(api.HeaderSeq); seq != "" {
		n, err := strconv.ParseUint(seq, 10, 64)
		if err != nil {
			return c, fmt.Errorf("%s is a number: %w", api.HeaderSeq, err)
		}
		c.Seq = n
	}
	if revision := r.Header.Get("If-Match"); revision != "" {
		n, err := strconv.ParseUint(revision, 10, 64)
		if err != nil {
			return c, fmt.Errorf("If-Match is a revision: %w", err)
		}
		c.If = &n
	}
	return c, nil
}

// written returns the answer for the result of a command.
func written(result machine.Result) answer {
	switch result.Outcome {
	case machine.Applied:
		return jsonAnswer(result.Revision, api.Write{Revision: result.Revision})
	case machine.Conflict:
		a := failure(http.StatusPreconditionFailed, api.Conflict, "the key has another revision")
		a.revision = result.Revision
		return a
	case machine.Expired:
		return failure(http.StatusGone, api.Expired, "the client is not known any more, or has sent a later request")
	case machine.TooLarge, machine.Full:
		return failure(http.StatusInsufficientStorage, api.Full, "the value or the store would exceed its size")
	default:
		return failure(http.StatusServiceUnavailable, api.Unknown, "the outcome is unknown")
	}
}

func (s *Server) join(w http.ResponseWriter, r *http.Request) {
	body, err := readBody(w, r, maxJoinBytes)
	var request node.Join
	if err == nil {
		err = json.Unmarshal(body, &request)
	}
	if err != nil {
		writeError(w, http.StatusBadRequest, api.Invalid, err.Error())
		return
	}
	s.change(w, r, body, func(ctx context.Context) error { return s.node.AddMember(ctx, request) })
}

func (s *Server) remove(w http.ResponseWriter, r *http.Request) {
	s.change(w, r, nil, func(ctx context.Context) error { return s.node.RemoveMember(ctx, r.PathValue("id")) })
}

// change changes the members, and answers with them.
func (s *Server) change(w http.ResponseWriter, r *http.Request, body []byte, do func(context.Context) error) {
	s.route(w, r, call{body: body, repeatable: true, local: func(ctx context.Context) (answer, error) {
		if err := do(ctx); errors.Is(err, node.ErrFull) || errors.Is(err, node.ErrLast) || errors.Is(err, machine.ErrInvalid) {
			return failure(http.StatusConflict, api.Invalid, err.Error()), nil
		} else if err != nil {
			return answer{}, err
		}
		status, err := s.node.Status()
		if err != nil {
			return answer{}, err
		}
		return jsonAnswer(0, status.Members), nil
	}})
}

func (s *Server) transfer(w http.ResponseWriter, r *http.Request) {
	ctx, stop := context.WithTimeout(r.Context(), api.RequestTimeout)
	defer stop()
	moved, err := s.node.TransferLeadership(ctx, r.URL.Query().Get("to"))
	if err != nil {
		status, code := classify(err)
		writeError(w, status, code, err.Error())
		return
	}
	if moved {
		s.options.Log.Info("Moved leadership away")
	}
	leader := s.node.LeaderID()
	for leader == "" && pause.For(ctx, attemptInterval) {
		leader = s.node.LeaderID()
	}
	jsonAnswer(0, api.Transfer{Transferred: moved, Leader: leader}).writeTo(w)
}

// backup streams the state. A follower redirects to the leader.
func (s *Server) backup(w http.ResponseWriter, r *http.Request) {
	if !s.node.IsLeader() {
		leader := s.node.Leader()
		if leader == "" {
			writeError(w, http.StatusServiceUnavailable, api.Unavailable, "no leader is known")
			return
		}
		http.Redirect(w, r, s.url(leader, "/backup"), http.StatusTemporaryRedirect)
		return
	}
	view, err := s.node.View(r.Context())
	if err != nil {
		status, code := classify(err)
		writeError(w, status, code, err.Error())
		return
	}
	defer view.Release()
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(backupTimeout)) // every connection of net/http supports it
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(view.Size(), 10))
	if _, err := view.WriteTo(w); err != nil {
		s.options.Log.Warn("Streaming a backup", "error", err) // the client misses bytes of Content-Length
	}
}

// readBody returns the body, or an error if it has more than limit bytes.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err != nil {
		return nil, fmt.Errorf("reading the body: %w", err)
	}
	return body, nil
}
