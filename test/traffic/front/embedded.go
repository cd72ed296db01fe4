package front

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	// maxLine bounds a line of commands.
	maxLine = 16 << 10

	// maxOperators is the number of connections that the Runtime API answers at once;
	// further connections wait.
	maxOperators = 64

	// operatorTimeout bounds each of them.
	operatorTimeout = 30 * time.Second

	// serverTimeout bounds a connection to a server and the head of its answer.
	connectTimeout, serverTimeout = 2 * time.Second, 60 * time.Second

	checkTimeout = time.Second

	// serverHeader is the header of an answer with the name of the server that gave it, or
	// failed to.
	serverHeader = "X-Server"
)

// Embedded is a reverse proxy in this process.
type Embedded struct {
	endpoints
	pool    *pool
	clients *http.Server
	runtime net.Listener
	stop    context.CancelFunc
	running sync.WaitGroup
	ended   chan struct{}
	once    sync.Once
}

// StartEmbedded returns when the proxy listens. Close ends it.
func StartEmbedded(options Options) (*Embedded, error) {
	p, err := options.listen()
	if err != nil {
		return nil, err
	}
	runtime, err := net.Listen("unix", p.socket)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listening for operators: %w", err), p.listener.Close())
	}
	if err := os.Chmod(p.socket, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("closing the socket to others: %w", err), runtime.Close(), p.listener.Close())
	}
	ctx, stop := context.WithCancel(context.Background())
	e := &Embedded{endpoints: p, pool: &pool{}, runtime: runtime, stop: stop, ended: make(chan struct{})}
	e.clients = &http.Server{
		Handler: e.proxy(), ReadHeaderTimeout: connectTimeout, IdleTimeout: serverTimeout, ErrorLog: silent(),
	}
	answering := &commands{pool: e.pool, backend: p.backend, check: func(name string, address netip.AddrPort, every time.Duration) context.CancelFunc {
		return e.check(ctx, name, address, every)
	}}
	e.running.Go(func() { _ = e.clients.Serve(p.listener) }) // Close ends both.
	e.running.Go(func() { e.operate(ctx, answering) })
	return e, nil
}

// silent returns a logger without output: disconnecting clients and failing servers are
// expected, and the load counts them.
func silent() *log.Logger { return log.New(io.Discard, "", 0) }

// Ended is closed when the proxy has ended.
func (e *Embedded) Ended() <-chan struct{} { return e.ended }

// Close ends the proxy at once, with its open requests.
func (e *Embedded) Close() error {
	var err error
	e.once.Do(func() {
		e.stop()
		err = errors.Join(e.clients.Close(), e.runtime.Close())
		e.running.Wait()
		close(e.ended)
	})
	if err != nil {
		return fmt.Errorf("ending the proxy: %w", err)
	}
	return nil
}

// sessionKey is the key of the session in a request's context.
type sessionKey struct{}

func (e *Embedded) proxy() http.Handler {
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			if s, ok := r.In.Context().Value(sessionKey{}).(session); ok {
				r.SetURL(&url.URL{Scheme: "http", Host: s.address.String()})
			}
		},
		// A transport retries a GET whose kept connection broke. Without kept connections
		// it retries nothing.
		Transport: &http.Transport{
			DisableKeepAlives: true, DialContext: (&net.Dialer{Timeout: connectTimeout}).DialContext, ResponseHeaderTimeout: serverTimeout,
		},
		FlushInterval: -1, // a server's bytes are forwarded at once
		ErrorLog:      silent(),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			http.Error(w, "the server failed", http.StatusBadGateway)
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, picked, ok := e.pool.pick(r.Context())
		if !ok {
			http.Error(w, "no server is available", http.StatusServiceUnavailable)
			return
		}
		defer picked.end()
		w.Header().Set(serverHeader, picked.server)
		proxy.ServeHTTP(w, r.WithContext(context.WithValue(ctx, sessionKey{}, picked)))
	})
}

// check checks whether the server accepts connections, until ctx ends. It skips servers in
// maintenance.
func (e *Embedded) check(ctx context.Context, name string, address netip.AddrPort, every time.Duration) context.CancelFunc {
	ctx, cancel := context.WithCancel(ctx)
	e.running.Go(func() {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			wanted := false
			e.pool.find(name, func(s *backendServer) { wanted, address = s.health.enabled && s.state != maint, s.address })
			if wanted {
				passed := accepts(ctx, address)
				e.pool.find(name, func(s *backendServer) {
					if s.state != maint && s.address == address {
						s.health.record(passed)
					}
				})
			}
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	})
	return cancel
}

func accepts(ctx context.Context, address netip.AddrPort) bool {
	conn, err := (&net.Dialer{Timeout: checkTimeout}).DialContext(ctx, "tcp", address.String())
	if err != nil {
		return false
	}
	_ = conn.Close() // it has answered
	return true
}

// operate answers clients of the Runtime API until the listener is closed and ctx has
// ended.
func (e *Embedded) operate(ctx context.Context, c *commands) {
	turns := make(chan struct{}, maxOperators)
	var talking sync.WaitGroup
	defer talking.Wait()
	for {
		turns <- struct{}{}
		conn, err := e.runtime.Accept()
		if err != nil {
			return
		}
		talking.Go(func() {
			defer func() { <-turns }()
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
			talk(conn, c)
		})
	}
}

// talk reads one line, of commands separated by semicolons, and answers each; an empty line
// ends an answer, and closing the connection ends all of them.
func talk(conn net.Conn, c *commands) {
	if err := conn.SetDeadline(time.Now().Add(operatorTimeout)); err != nil {
		return
	}
	line, err := bufio.NewReader(io.LimitReader(conn, maxLine)).ReadString('\n')
	if err != nil {
		return // no command, or a line above the bound
	}
	for command := range strings.SplitSeq(strings.TrimSpace(line), ";") {
		text := c.answer(command)
		if text != "" {
			text = strings.TrimSuffix(text, "\n") + "\n"
		}
		if _, err := io.WriteString(conn, text+"\n"); err != nil {
			return
		}
	}
}
