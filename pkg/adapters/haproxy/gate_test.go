package haproxy_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/podops-dev/podops/pkg/adapters/haproxy/haproxytest"
	"github.com/podops-dev/podops/pkg/adapters/haproxy/runtimeapi"
	"github.com/podops-dev/podops/pkg/resourceconsist/adaptertest"
)

// gate is a proxy between the adapter and the Runtime API of a real HAProxy that injects
// faults.
type gate struct {
	proxy    *haproxytest.HAProxy
	direct   *runtimeapi.Client // past the gate
	endpoint string
	op       atomic.Value // adaptertest.Op: the method of the adapter that is running

	mu     sync.Mutex
	faults []adaptertest.Fault
	mended chan struct{}
	calls  int

	// watched is the employer whose servers are counted after each change, and fewest the smallest number of them that served.
	watched string
	fewest  int
}

func newGate(t testing.TB, proxy *haproxytest.HAProxy) *gate {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "gate")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	direct, err := runtimeapi.ParseEndpoint("tcp:" + proxy.Runtime)
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{proxy: proxy, direct: runtimeapi.New(direct, 0), endpoint: "unix:" + listener.Addr().String(), mended: make(chan struct{})}
	g.op.Store(adaptertest.Op(""))
	t.Cleanup(func() {
		g.Mend(t)
		_ = listener.Close()
		_ = os.RemoveAll(dir)
	})
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go g.pass(conn)
		}
	}()
	return g
}

// pass forwards one command, unless a fault applies.
func (g *gate) pass(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	command, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return
	}
	g.mu.Lock()
	g.calls++
	faults, mended := slices.Clone(g.faults), g.mended
	g.mu.Unlock()
	lost := false
	for _, fault := range faults {
		switch {
		case fault.Kind == adaptertest.Throttle:
			_, _ = io.WriteString(conn, "Too many commands.\n\n")
			return
		case g.op.Load() != fault.Op:
		case fault.Kind == adaptertest.Hang:
			<-mended
		case fault.Kind == adaptertest.Fail, fault.Kind == adaptertest.FailOne && strings.Contains(command, "_"+fault.Employee+"_"):
			_, _ = io.WriteString(conn, "Not today.\n\n")
			return
		case fault.Kind == adaptertest.LostReply:
			// A verb reads, too; LostReply drops the reply to a command that changes
			// something.
			lost = !strings.HasPrefix(command, "show ")
		}
	}
	inner, err := net.Dial("unix", g.proxy.Socket)
	if err != nil {
		return
	}
	defer func() { _ = inner.Close() }()
	if _, err := io.WriteString(inner, command); err != nil {
		return
	}
	answer, err := io.ReadAll(inner)
	if !strings.HasPrefix(command, "show ") {
		g.watch()
	}
	if err == nil && !lost {
		_, _ = conn.Write(answer)
	}
}

// watch counts the servers of the watched employer that serve.
func (g *gate) watch() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.watched != "" {
		g.fewest = min(g.fewest, g.serving(g.watched))
	}
}

// serving returns how many servers of an employer serve; 0 if HAProxy does not answer.
func (g *gate) serving(employer string) int {
	servers, err := g.direct.Servers(context.Background(), haproxytest.Backend)
	count := 0
	for name, server := range servers {
		if err == nil && employerOf(name) == employer && server.Serves() {
			count++
		}
	}
	return count
}

// Fewest implements adaptertest.Watcher.
func (g *gate) Fewest(_ testing.TB, employer string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	fewest, now := g.fewest, g.serving(employer)
	if g.watched != employer {
		fewest = now
	}
	g.watched, g.fewest = employer, now
	return min(fewest, now)
}

func (g *gate) inject(fault adaptertest.Fault) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.faults = append(g.faults, fault)
}

func (g *gate) Mend(testing.TB) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.faults = nil
	close(g.mended)
	g.mended = make(chan struct{})
}

func (g *gate) Calls(testing.TB) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calls
}

// employerOf and employeeOf parse the name of a server: <namespace>_<service>_<pod>_<hash>.
func employerOf(server string) string { return part(server, 1) }
func employeeOf(server string) string { return part(server, 2) }

func part(server string, n int) string {
	parts := strings.Split(server, "_")
	if len(parts) != 4 {
		return ""
	}
	return parts[n]
}

// serve answers requests at an address until the test ends.
func serve(t testing.TB, address string, port int, handle http.HandlerFunc) {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(port)))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: handle}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
}
