package front

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"text/template"
	"time"
)

const (
	// startPatience is the timeout of the start of HAProxy, which takes a tenth of a second
	// on an idle machine.
	startPatience = 20 * time.Second

	// stopPatience is the timeout of its end after SIGTERM.
	stopPatience = 5 * time.Second

	// clientFD is the file descriptor on which HAProxy finds the listener: the first that
	// exec.Cmd.ExtraFiles hands down.
	clientFD = 3
)

// config has no server: they are added at run time. HAProxy requires an algorithm that
// supports changes of servers and weights, such as roundrobin.
var config = template.Must(template.New("haproxy.cfg").Parse(`global
    stats socket unix@{{ .Socket }} mode 660 level admin
    stats timeout 30s
    # An adapter, an observer, and a relay that fails.
    stats maxconn 64
    maxconn 4096

defaults
    mode {{ .Mode }}
    maxconn 4096
    timeout connect 2s
    timeout client 60s
    timeout server 60s
    timeout check 1s
    # A failure must be counted, not hidden by a retry.
    retries 0

frontend clients
    bind fd@{{ .FD }}
{{- if eq .Mode "http" }}
    # Names the server that failed, where the pod could not.
    http-after-response set-header X-Server %[srv_name]
{{- end }}
    default_backend {{ .Backend }}

backend {{ .Backend }}
    balance roundrobin
`))

// HAProxy is a running HAProxy.
type HAProxy struct {
	endpoints
	command *exec.Cmd
	log     string
	ended   chan struct{}
	err     error // its exit error; valid after ended is closed
	stop    sync.Once
}

// ErrNotInstalled means that HAProxy is not installed. hack/haproxy installs it.
var ErrNotInstalled = errors.New("haproxy is not installed: run hack/haproxy")

// Find returns the path of HAProxy, or ErrNotInstalled. Packages put it into folders that
// are not on every PATH.
func Find() (string, error) {
	for _, name := range []string{"haproxy", "/usr/local/sbin/haproxy", "/usr/sbin/haproxy", "/sbin/haproxy"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrNotInstalled
}

// StartHAProxy returns when HAProxy answers at its socket. It ends with Close, or with this
// process.
func StartHAProxy(ctx context.Context, options Options) (*HAProxy, error) {
	if options.Program == "" {
		program, err := Find()
		if err != nil {
			return nil, err
		}
		options.Program = program
	}
	p, err := options.listen()
	if err != nil {
		return nil, err
	}
	// HAProxy has a duplicate of the listener, so it has the port from the start.
	defer p.listener.Close()
	h := &HAProxy{endpoints: p, log: filepath.Join(options.Dir, "haproxy.log"), ended: make(chan struct{})}
	if err := h.run(options); err != nil {
		return nil, err
	}
	if err := h.awaitAnswer(ctx); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

func (h *HAProxy) run(options Options) error {
	path := filepath.Join(options.Dir, "haproxy.cfg")
	var text bytes.Buffer
	mode := "http"
	if options.Connections {
		mode = "tcp"
	}
	if err := config.Execute(&text, map[string]any{"Socket": h.socket, "FD": clientFD, "Backend": h.backend, "Mode": mode}); err != nil {
		return fmt.Errorf("writing the configuration of haproxy: %w", err)
	}
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		return fmt.Errorf("writing the configuration of haproxy: %w", err)
	}
	log, err := os.Create(h.log)
	if err != nil {
		return fmt.Errorf("making the log of haproxy: %w", err)
	}
	defer log.Close()
	listener, err := h.listener.File()
	if err != nil {
		return fmt.Errorf("handing the listener to haproxy: %w", err)
	}
	defer listener.Close()
	// -db keeps it in the foreground, a single process.
	h.command = exec.Command(options.Program, "-db", "-f", path)
	h.command.Stdout, h.command.Stderr, h.command.ExtraFiles = log, log, []*os.File{listener}
	h.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := h.command.Start(); err != nil {
		return fmt.Errorf("starting haproxy: %w", err)
	}
	go func() {
		h.err = h.command.Wait()
		close(h.ended)
	}()
	return nil
}

func (h *HAProxy) awaitAnswer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for {
		if conn, err := (&net.Dialer{}).DialContext(ctx, "unix", h.socket); err == nil {
			return conn.Close()
		}
		select {
		case <-h.ended:
			return h.endError()
		case <-ctx.Done():
			return fmt.Errorf("waiting for haproxy: %w\n%s", ctx.Err(), h.tail())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// endError returns the error of an end that Close did not cause. It may have no exit error.
func (h *HAProxy) endError() error {
	return fmt.Errorf("%w\n%s", errors.Join(ErrEnded, h.err), h.tail())
}

// tail returns the end of its log.
func (h *HAProxy) tail() string {
	const most = 2000
	text, err := os.ReadFile(h.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-most):])
}

// ErrEnded means that HAProxy has ended without Close.
var ErrEnded = errors.New("haproxy has ended")

// While returns a context that ends with parent, or when HAProxy ends: its cause is then
// ErrEnded, with the end of its log.
func (h *HAProxy) While(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	go func() {
		select {
		case <-h.ended:
			cancel(h.endError())
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// Ended is closed when HAProxy has ended for any reason.
func (h *HAProxy) Ended() <-chan struct{} { return h.ended }

// Close ends HAProxy at once, with its open requests, and removes its socket.
func (h *HAProxy) Close() error {
	h.stop.Do(func() {
		_ = h.command.Process.Signal(syscall.SIGTERM) // it may have ended already
		select {
		case <-h.ended:
		case <-time.After(stopPatience):
			_ = h.command.Process.Kill()
			<-h.ended
		}
	})
	if err := os.Remove(h.socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing the socket of haproxy: %w", err)
	}
	return nil
}
