package webhookserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// shutdownTimeout is the time that running reviews may take to end.
const shutdownTimeout = 15 * time.Second

// Options of a Server.
type Options struct {
	// Address on which the server listens, "<host>:<port>".
	Address string

	// ConfigureTLS sets the certificate.
	ConfigureTLS func(*tls.Config)

	// ClientAuth verifies the certificates of clients. Nil: clients send no certificates.
	ClientAuth *ClientAuth

	// Limits default to DefaultLimits.
	Limits Limits

	// Slow are paths whose reviews may take seconds. They do not take the slots of others.
	Slow []string

	// Waiting begin the paths whose reviews may wait for Limits.ReviewTimeout, most of it without
	// using the processor. They do not take the slots of others.
	Waiting []string

	// Draining reports whether the process is about to end. Nil: never.
	Draining func() bool

	Metrics *Metrics
}

// Server is a webhook.Server with limits. Handlers are registered as in the
// webhook.Server of controller-runtime, and counted in its metrics.
type Server struct {
	webhook.Server
	options Options
	gate    *gate
	open    *sharedLedger
	address atomic.Value // string, once it listens
}

// New returns a server that does not listen yet.
func New(options Options) (*Server, error) {
	if options.Limits == (Limits{}) {
		options.Limits = DefaultLimits()
	}
	if err := options.Limits.Validate(); err != nil {
		return nil, fmt.Errorf("limits of the webhook server: %w", err)
	}
	if len(options.Waiting) > 0 && options.Limits.RunningWaits == 0 {
		return nil, fmt.Errorf("no review of %v may run: RunningWaits is 0", options.Waiting)
	}
	if options.Draining == nil {
		options.Draining = func() bool { return false }
	}
	limits, mux := options.Limits, http.NewServeMux()
	slow := map[string]bool{}
	for _, path := range options.Slow {
		slow[path] = true
	}
	return &Server{
		Server:  webhook.NewServer(webhook.Options{WebhookMux: mux}),
		options: options,
		open:    newSharedLedger(int64(limits.Connections), int64(limits.ConnectionsPerSource), options.Metrics.connectionsEvicted.Inc),
		gate: &gate{
			next: mux, limits: limits, metrics: options.Metrics, draining: options.Draining,
			pace:    newPace(limits.pacing()),
			pending: newSharedLedger(limits.PendingBytes, limits.PendingBytesPerSource, options.Metrics.reviewsEvicted.Inc),
			lanes: lanes{
				fast: newLane(limits.Running, limits.WaitingPerSource), slow: newLane(limits.Running, limits.WaitingPerSource), slowPaths: slow,
				waiting: newLane(limits.RunningWaits, limits.WaitingPerSource), waitingPaths: options.Waiting,
			},
		},
	}, nil
}

// Exempt sets the sources that are not paced: addresses of API servers.
func (s *Server) Exempt(source func(netip.Addr) bool) { s.gate.exempt.Store(&source) }

// Start serves until ctx ends, and then until the running reviews have their response.
func (s *Server) Start(ctx context.Context) error {
	logger := ctrllog.FromContext(ctx).WithName("webhooks")
	config := &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"h2", "http/1.1"}}
	s.options.ConfigureTLS(config)
	if s.options.ClientAuth != nil {
		s.options.ClientAuth.configure(config)
	}
	bound, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.options.Address)
	if err != nil {
		return fmt.Errorf("listening for webhooks: %w", err)
	}
	s.address.Store(bound.Addr().String())
	logger.Info("Serving webhooks", "address", bound.Addr().String(), "clientCertificates", s.options.ClientAuth != nil)

	server := s.server(ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if err := server.Shutdown(end); err != nil {
			logger.Error(err, "Shutting down the webhook server")
		}
	}()
	limited := &listener{Listener: bound, open: s.open, admits: s.gate.connects, refused: s.options.Metrics.connectionsRefused.Inc}
	if err := server.Serve(tls.NewListener(limited, config)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving webhooks: %w", err)
	}
	<-stopped
	return nil
}

type connKey struct{}

// server bounds the time for every step of a connection.
func (s *Server) server(ctx context.Context) *http.Server {
	limits := s.options.Limits
	logger := ctrllog.FromContext(ctx).WithName("webhooks")
	return &http.Server{
		Handler:           s.gate,
		ReadHeaderTimeout: limits.ReadTimeout,
		ReadTimeout:       limits.ReadTimeout,
		WriteTimeout:      limits.ReadTimeout + limits.ReviewTimeout,
		IdleTimeout:       limits.IdleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          maxStreams,
			MaxReceiveBufferPerConnection: receiveBuffer,
			MaxReceiveBufferPerStream:     receiveBuffer,
		},
		// Running reviews get their response after ctx has ended.
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if secured, ok := c.(*tls.Conn); ok {
				return context.WithValue(ctx, connKey{}, secured.NetConn())
			}
			return ctx
		},
		ErrorLog: log.New(&quiet{write: func(line string) { logger.Info("Connection failed", "error", line) }, every: rate.NewLimiter(1, 5)}, "", 0),
	}
}

// Address returns the address on which the server listens; empty before it does.
func (s *Server) Address() string {
	address, _ := s.address.Load().(string)
	return address
}

// PendingBytes returns the size of all reviews without a response.
func (s *Server) PendingBytes() int64 { return s.gate.pending.held() }

// StartedChecker returns a check that fails until the server listens.
func (s *Server) StartedChecker() healthz.Checker {
	return func(*http.Request) error {
		if s.Address() == "" {
			return errors.New("the webhook server does not listen yet")
		}
		return nil
	}
}

// quiet writes some of the lines that any client can cause.
type quiet struct {
	write func(string)
	every *rate.Limiter
}

func (q *quiet) Write(line []byte) (int, error) {
	if q.every.Allow() {
		q.write(string(line))
	}
	return len(line), nil
}
