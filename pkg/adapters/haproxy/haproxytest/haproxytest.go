// Package haproxytest runs a real HAProxy for tests.
package haproxytest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"text/template"
	"time"
)

// Backend is the name of the only backend. It is empty at first.
const Backend = "web"

// startTimeout is generous: forking takes long on a busy machine.
const startTimeout = 30 * time.Second

const configuration = `global
  stats socket {{.Socket}} mode 600 level admin
  stats socket {{.Runtime}} level admin
  nbthread 2
defaults
  mode http
  timeout connect 1s
  timeout client 60s
  timeout server 60s
  timeout queue 1s
frontend web
  bind {{.Front}}
  default_backend web
backend web
  balance roundrobin
{{range .Lines}}  {{.}}
{{end}}`

// HAProxy is a process and its addresses. Front, Runtime and Socket stay the same when it
// is restarted.
type HAProxy struct {
	Front   string // host:port of the load balancer
	Runtime string // host:port of the Runtime API
	Socket  string // path of the same

	binary, config string
	process        *exec.Cmd
	output         *bytes.Buffer
}

// Start runs HAProxy until the test ends. Lines are added to its backend. The test fails
// when HAProxy is not installed and cannot be.
func Start(t testing.TB, lines ...string) *HAProxy {
	t.Helper()
	// The path of a socket must be short, and the directory of a test is not.
	dir, err := os.MkdirTemp("/tmp", "hap")
	if err != nil {
		t.Fatalf("making a directory: %v", err)
	}
	h := &HAProxy{
		Front: freeAddress(t), Runtime: freeAddress(t), Socket: filepath.Join(dir, "s"),
		binary: find(t), config: filepath.Join(dir, "haproxy.cfg"),
	}
	t.Cleanup(func() {
		h.Stop(t)
		_ = os.RemoveAll(dir)
	})
	var text bytes.Buffer
	values := struct {
		*HAProxy
		Lines []string
	}{h, lines}
	if err := template.Must(template.New("").Parse(configuration)).Execute(&text, values); err != nil {
		t.Fatalf("writing the configuration: %v", err)
	}
	if err := os.WriteFile(h.config, text.Bytes(), 0o600); err != nil {
		t.Fatalf("writing the configuration: %v", err)
	}
	h.Run(t)
	return h
}

// Run starts the process again after Stop, without the servers that were added at run time.
func (h *HAProxy) Run(t testing.TB) {
	t.Helper()
	h.output = &bytes.Buffer{}
	h.process = exec.CommandContext(context.Background(), h.binary, "-db", "-f", h.config)
	h.process.Stdout, h.process.Stderr = h.output, h.output
	if err := h.process.Start(); err != nil {
		t.Fatalf("starting HAProxy: %v", err)
	}
	deadline := time.Now().Add(startTimeout)
	for {
		err := errors.Join(reach("unix", h.Socket), reach("tcp", h.Runtime), reach("tcp", h.Front))
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			h.Stop(t)
			t.Fatalf("HAProxy does not listen after %s: %v\n%s", startTimeout, err, h.output)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Stop kills the process. Stopping twice has no effect.
func (h *HAProxy) Stop(t testing.TB) {
	t.Helper()
	if h.process == nil {
		return
	}
	_ = h.process.Process.Kill()
	_ = h.process.Wait()
	h.process = nil
}

func reach(network, address string) error {
	dialer := net.Dialer{Timeout: time.Second}
	conn, err := dialer.DialContext(context.Background(), network, address)
	if err != nil {
		return fmt.Errorf("dialling %s: %w", address, err)
	}
	return conn.Close()
}

func freeAddress(t testing.TB) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("looking for a free port: %v", err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

// find returns the path of HAProxy; hack/haproxy installs it.
func find(t testing.TB) string {
	t.Helper()
	if path, err := exec.LookPath("haproxy"); err == nil {
		return path
	}
	_, file, _, _ := runtime.Caller(0)
	script := filepath.Join(filepath.Dir(file), "../../../../hack/haproxy")
	var stderr strings.Builder
	command := exec.CommandContext(context.Background(), script)
	command.Stderr = &stderr
	path, err := command.Output()
	if err != nil {
		t.Fatalf("this test needs HAProxy 2.6 or newer, and installing it failed: %v\n%s", err, stderr.String())
	}
	return strings.TrimSpace(string(path))
}
