package approvals

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"time"
)

const (
	// maxConnections bounds the open connections of each side; further connections wait.
	maxConnections = 256

	headerTimeout = 10 * time.Second
	bodyTimeout   = 30 * time.Second
)

// Options configures a server. The zero value listens on free ports of 127.0.0.1.
type Options struct {
	// HTTPAddress and HTTPSAddress are "<host>:<port>"; empty: a free port of 127.0.0.1.
	HTTPAddress  string
	HTTPSAddress string

	// Hosts are the names and addresses of the certificate, besides localhost, 127.0.0.1
	// and ::1.
	Hosts []string

	// Flaw is the flaw of the certificate; empty: a valid certificate.
	Flaw Flaw
}

// Flaw is a reason for a client to reject a certificate that the CA has signed.
type Flaw string

// The flaws that a certificate can have.
const (
	Expired        Flaw = "expired"
	ForAnotherName Flaw = "for another name"
)

// Server serves a Service over HTTP, and over HTTPS with its own CA.
type Server struct {
	service       *Service
	authority     authority
	plain, secure net.Listener
	servers       []*http.Server
	ended         chan error
	letGo         context.CancelFunc // cancels requests that have no answer yet
}

// Serve listens until Close. A service that continues in another server has restarted
// without losing its state.
func Serve(service *Service, options Options) (*Server, error) {
	ca, err := newAuthority(time.Now())
	if err != nil {
		return nil, err
	}
	certificate, err := ca.serving(options, time.Now())
	if err != nil {
		return nil, err
	}
	ctx, letGo := context.WithCancel(context.Background())
	s := &Server{service: service, authority: ca, ended: make(chan error, 2), letGo: letGo}
	if s.plain, err = listen(options.HTTPAddress); err != nil {
		return nil, err
	}
	secure, err := listen(options.HTTPSAddress)
	if err != nil {
		return nil, errors.Join(err, s.plain.Close())
	}
	s.secure = tls.NewListener(secure, &tls.Config{
		Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
	})
	for _, listener := range []net.Listener{s.plain, s.secure} {
		server := &http.Server{
			Handler: s.handler(), BaseContext: func(net.Listener) context.Context { return ctx },
			ReadHeaderTimeout: headerTimeout, ReadTimeout: bodyTimeout, IdleTimeout: time.Minute,
			// Tests disconnect clients and use untrusted clients, so errors of connections
			// are not logged.
			ErrorLog: log.New(io.Discard, "", 0),
		}
		s.servers = append(s.servers, server)
		go func() { s.ended <- server.Serve(listener) }()
	}
	return s, nil
}

func listen(address string) (net.Listener, error) {
	if address == "" {
		address = "127.0.0.1:0"
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening on %q: %w", address, err)
	}
	return newBounded(listener, maxConnections), nil
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", s.service)
	mux.HandleFunc("GET /ca.pem", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-pem-file")
		_, _ = w.Write(s.authority.pem) // The client may have disconnected.
	})
	return mux
}

// URL returns the URL of a path over HTTP: URL("/approve").
func (s *Server) URL(path string) string { return "http://" + s.plain.Addr().String() + path }

// SecureURL returns the URL of a path over HTTPS.
func (s *Server) SecureURL(path string) string { return "https://" + s.secure.Addr().String() + path }

// CA returns the certificate that signs the HTTPS side, as PEM.
func (s *Server) CA() []byte { return slices.Clone(s.authority.pem) }

// Ended returns a channel with the error of a side that ended without Close.
func (s *Server) Ended() <-chan error { return s.ended }

// Close stops listening, lets open requests end until ctx ends, and cuts the others.
func (s *Server) Close(ctx context.Context) error {
	s.letGo()
	var errs []error
	for _, server := range s.servers {
		if err := server.Shutdown(ctx); err != nil {
			errs = append(errs, fmt.Errorf("ending: %w", err), server.Close())
		}
	}
	return errors.Join(errs...)
}
