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
	// maxConnections bounds each of the two sides. More wait.
	maxConnections = 256

	headerTimeout = 10 * time.Second
	bodyTimeout   = 30 * time.Second
)

// Options of a server. The zero value listens on free ports of 127.0.0.1.
type Options struct {
	// HTTPAddress and HTTPSAddress are "<host>:<port>"; empty: a free port of 127.0.0.1.
	HTTPAddress  string
	HTTPSAddress string

	// Hosts are names and addresses that the certificate is for, besides localhost,
	// 127.0.0.1 and ::1.
	Hosts []string

	// Flaw of the certificate; empty: it has none.
	Flaw Flaw
}

// Flaw is why a client must not accept a certificate that the CA has signed.
type Flaw string

// The flaws that a certificate can have.
const (
	Expired        Flaw = "expired"
	ForAnotherName Flaw = "for another name"
)

// Server lets a Service answer over HTTP, and over HTTPS under a CA of its own.
type Server struct {
	service       *Service
	authority     authority
	plain, secure net.Listener
	servers       []*http.Server
	ended         chan error
	letGo         context.CancelFunc // of requests that have no answer yet
}

// Serve starts to listen, until Close. A service that goes on in another server after that
// has had a restart that forgets nothing.
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
			// Clients that hang up, or do not trust us, are what tests are about.
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
		_, _ = w.Write(s.authority.pem) // Whoever asked may have gone.
	})
	return mux
}

// URL is that of a path over HTTP: URL("/approve").
func (s *Server) URL(path string) string { return "http://" + s.plain.Addr().String() + path }

// SecureURL is that of a path over HTTPS.
func (s *Server) SecureURL(path string) string { return "https://" + s.secure.Addr().String() + path }

// CA is the certificate, as PEM, that the HTTPS side is signed with.
func (s *Server) CA() []byte { return slices.Clone(s.authority.pem) }

// Ended has the error of a side that has ended without Close.
func (s *Server) Ended() <-chan error { return s.ended }

// Close listens no longer, lets requests that are being answered end for as long as ctx
// allows, and cuts the others off.
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
