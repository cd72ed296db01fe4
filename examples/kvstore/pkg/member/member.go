package member

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/netutil"

	"github.com/podops-dev/podops/examples/kvstore/pkg/client"
	"github.com/podops-dev/podops/examples/kvstore/pkg/node"
	"github.com/podops-dev/podops/examples/kvstore/pkg/pause"
	"github.com/podops-dev/podops/examples/kvstore/pkg/server"
)

const (
	headerTimeout  = 5 * time.Second
	readTimeout    = 15 * time.Second
	idleTimeout    = time.Minute
	maxHeaderBytes = 16 << 10

	// transferTimeout bounds the attempts to move leadership away at the end,
	// requestsTimeout the wait for open requests.
	transferTimeout  = 8 * time.Second
	transferInterval = 100 * time.Millisecond
	requestsTimeout  = 10 * time.Second
)

type member struct {
	options Options
	log     *slog.Logger
	node    *node.Node
	server  *server.Server
	client  *client.Client
}

// Run runs a member until ctx ends, and returns when it has left in order.
func Run(ctx context.Context, o Options) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", net.JoinHostPort(o.Node.Listen, strconv.Itoa(o.Port)))
	if err != nil {
		return fmt.Errorf("listening for clients: %w", err)
	}
	n, err := node.Open(ctx, o.Node)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	m := &member{
		options: o, log: o.Log, node: n, client: client.New(o.Resolver, o.Port),
		server: server.New(n, server.Options{ID: o.Node.ID, Version: o.Version, Fault: o.Fault, Port: o.Port, Resolver: o.Resolver, Log: o.Log}),
	}
	return m.run(ctx, netutil.LimitListener(listener, o.MaxConnections))
}

func (m *member) run(ctx context.Context, listener net.Listener) error {
	api := &http.Server{
		Handler: m.server.Handler(), MaxHeaderBytes: maxHeaderBytes,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(m.log.Handler(), slog.LevelDebug),
	}
	var unused unusedConns
	api.ConnState = unused.observe
	api.RegisterOnShutdown(unused.close)
	failed := make(chan error, 2)
	go func() { failed <- api.Serve(listener) }()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	established := make(chan struct{})
	go func() {
		defer close(established)
		if err := m.establish(ctx); err != nil && ctx.Err() == nil {
			failed <- err
		}
	}()
	m.log.Info("Serving", "version", m.options.Version, "address", listener.Addr().String(), "fault", string(m.options.Fault))
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	stop()
	<-established
	return errors.Join(err, m.leave(api))
}

// leave ends the member: it is not ready first, then leads no more, then stops serving.
func (m *member) leave(api *http.Server) error {
	m.log.Info("Ending")
	m.server.Drain()
	m.handOver()
	time.Sleep(m.options.ShutdownDelay)
	ctx, stop := context.WithTimeout(context.Background(), requestsTimeout)
	defer stop()
	if err := api.Shutdown(ctx); err != nil {
		m.log.Warn("Cutting open requests", "error", err)
		_ = api.Close() // the process ends
	}
	return m.node.Close()
}

// unusedConns are connections without a request, which clients dial in advance. Shutdown waits
// five seconds for them.
type unusedConns struct {
	mu    sync.Mutex
	conns map[net.Conn]bool
}

func (u *unusedConns) observe(conn net.Conn, state http.ConnState) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if state != http.StateNew {
		delete(u.conns, conn)
		return
	}
	if u.conns == nil {
		u.conns = map[net.Conn]bool{}
	}
	u.conns[conn] = true
}

func (u *unusedConns) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for conn := range u.conns {
		_ = conn.Close() // the client finds it closed
	}
}

// handOver moves leadership to another voter, if this member leads and another voter exists.
func (m *member) handOver() {
	ctx, stop := context.WithTimeout(context.Background(), transferTimeout)
	defer stop()
	for m.node.IsLeader() && !m.node.IsOnlyVoter() {
		moved, err := m.node.TransferLeadership(ctx, "")
		if err == nil {
			m.log.Info("Moved leadership away", "moved", moved)
			return
		}
		m.log.Warn("Moving leadership away", "error", err)
		if !pause.For(ctx, transferInterval) {
			return
		}
	}
}
