package front

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podops-dev/podops/test/await"
)

// patience is the timeout of events that take milliseconds on an idle machine.
const patience = 30 * time.Second

// balancer is the interface of both load balancers.
type balancer interface {
	Address() string
	Socket() string
	Backend() string
	Ended() <-chan struct{}
	Close() error
}

// both runs a test on both load balancers: HAProxy and the embedded proxy must behave
// alike.
func both(t *testing.T, test func(t *testing.T, b balancer)) {
	t.Helper()
	t.Run("haproxy", func(t *testing.T) {
		h, err := StartHAProxy(context.Background(), Options{Dir: folder(t), Program: installed(t)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closing(t, h) })
		test(t, h)
	})
	t.Run("embedded", func(t *testing.T) {
		e, err := StartEmbedded(Options{Dir: folder(t)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closing(t, e) })
		test(t, e)
	})
}

// installed returns the path of HAProxy, and installs it if necessary.
func installed(t *testing.T) string {
	t.Helper()
	var complaints strings.Builder
	command := exec.CommandContext(t.Context(), "../../../hack/haproxy")
	command.Stderr = &complaints
	path, err := command.Output()
	if err != nil {
		t.Fatalf("this test needs haproxy, and installing it failed: %v\n%s", err, complaints.String())
	}
	return strings.TrimSpace(string(path))
}

// folder returns a folder with a short path, as sockets require. The path of t.TempDir has
// the name of the test.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "front")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func closing(t *testing.T, b balancer) {
	t.Helper()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// command sends a line to the Runtime API and returns the answer.
func command(t *testing.T, b balancer, line string) string {
	t.Helper()
	conn, err := net.Dial("unix", b.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, line+"\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

// serve adds a server and puts it into service.
func serve(t *testing.T, b balancer, name, address string, keywords ...string) {
	t.Helper()
	if got := command(t, b, strings.TrimSpace(fmt.Sprintf("add server web/%s %s %s", name, address, strings.Join(keywords, " ")))); got != "New server registered.\n\n" {
		t.Fatalf("adding %s: %q", name, got)
	}
	if got := command(t, b, "set server web/"+name+" state ready"); got != "\n" {
		t.Fatalf("putting %s into service: %q", name, got)
	}
}

// sessions returns the number of open requests of a server.
func sessions(t *testing.T, b balancer, name string) int {
	t.Helper()
	for line := range strings.Lines(command(t, b, "show stat web 4 -1")) {
		if columns := strings.Split(line, ","); len(columns) > 4 && columns[1] == name {
			count, err := strconv.Atoi(columns[4])
			if err != nil {
				t.Fatal(err)
			}
			return count
		}
	}
	t.Fatalf("no server %s", name)
	return 0
}

// get sends a request on its own connection.
func get(b balancer, path string) (status int, server, body string, err error) {
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get("http://" + b.Address() + path)
	if err != nil {
		return 0, "", "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, answer.Header.Get(serverHeader), string(text), err
}

// backend is a server that answers with its name; /wait answers when it may.
func backend(t *testing.T, name string) (address string, waiting *atomic.Int32, goOn chan struct{}) {
	t.Helper()
	waiting, goOn = &atomic.Int32{}, make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			waiting.Add(1)
			select {
			case <-goOn:
			case <-r.Context().Done():
			}
		}
		_, _ = io.WriteString(w, name)
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String(), waiting, goOn
}

func TestAnEmptyBackendAnswers503(t *testing.T) {
	both(t, func(t *testing.T, b balancer) {
		if status, _, _, err := get(b, "/"); err != nil || status != http.StatusServiceUnavailable {
			t.Errorf("got %d, %v, want 503", status, err)
		}
	})
}

func TestRequestsGoToServersInServiceByWeight(t *testing.T) {
	both(t, func(t *testing.T, b balancer) {
		first, _, _ := backend(t, "first")
		second, _, _ := backend(t, "second")
		third, _, _ := backend(t, "third")
		serve(t, b, "a", first, "weight", "30")
		serve(t, b, "b", second, "weight", "10")
		if got := command(t, b, "add server web/c "+third); got != "New server registered.\n\n" {
			t.Fatal(got) // and it stays in maintenance
		}
		got := map[string]int{}
		for range 40 {
			status, server, body, err := get(b, "/")
			if err != nil || status != http.StatusOK {
				t.Fatalf("got %d, %v", status, err)
			}
			got[server+" "+body]++
		}
		if diff := cmp.Diff(map[string]int{"a first": 30, "b second": 10}, got); diff != "" {
			t.Errorf("requests by server (-want +got):\n%s", diff)
		}
	})
}

// TestDrainedServerFinishesItsRequests follows a server out of the pool: its requests
// complete, no new ones arrive, and it cannot be removed before it is idle.
func TestDrainedServerFinishesItsRequests(t *testing.T) {
	both(t, func(t *testing.T, b balancer) {
		address, waiting, goOn := backend(t, "first")
		serve(t, b, "a", address)
		done := make(chan error, 1)
		go func() {
			status, _, body, err := get(b, "/wait")
			if err == nil && (status != http.StatusOK || body != "first") {
				err = fmt.Errorf("got %d %q", status, body)
			}
			done <- err
		}()
		await.Until(t, "the request is with its server", func() bool { return waiting.Load() == 1 })
		if got := command(t, b, "set server web/a state drain"); got != "\n" {
			t.Fatalf("draining: %q", got)
		}
		if got := sessions(t, b, "a"); got != 1 {
			t.Errorf("%d sessions are left, want 1", got)
		}
		if status, _, _, err := get(b, "/"); err != nil || status != http.StatusServiceUnavailable {
			t.Errorf("a new request got %d, %v; want 503, since the only server drains", status, err)
		}
		if got := command(t, b, "del server web/a"); !strings.Contains(got, "maintenance") {
			t.Errorf("removing a draining server: %q", got)
		}
		if got := command(t, b, "set server web/a state maint"); got != "\n" {
			t.Fatalf("maintenance: %q", got)
		}
		if got := command(t, b, "del server web/a"); !strings.Contains(got, "still has connections") {
			t.Errorf("removing a server that still answers: %q", got)
		}
		close(goOn)
		if err := await.Receive(t, "the open request ends", done); err != nil {
			t.Errorf("the open request: %v", err)
		}
		await.Until(t, "no session is left", func() bool { return sessions(t, b, "a") == 0 })
		if got := command(t, b, "del server web/a"); !strings.Contains(got, "Server deleted.") {
			t.Errorf("removing an idle server: %q", got)
		}
	})
}

func TestSessionsCanBeShutDown(t *testing.T) {
	both(t, func(t *testing.T, b balancer) {
		address, waiting, _ := backend(t, "first")
		serve(t, b, "a", address)
		done := make(chan error, 1)
		go func() {
			status, _, _, err := get(b, "/wait")
			if err == nil && status == http.StatusOK {
				err = nil
			} else {
				err = fmt.Errorf("cut off: %d, %w", status, err)
			}
			done <- err
		}()
		await.Until(t, "the request is with its server", func() bool { return waiting.Load() == 1 })
		if got := command(t, b, "shutdown sessions server web/a"); got != "\n" {
			t.Errorf("got %q", got)
		}
		if err := await.Receive(t, "the request is cut", done); err == nil {
			t.Error("the request succeeded")
		}
		await.Until(t, "no session is left", func() bool { return sessions(t, b, "a") == 0 })
	})
}

// TestFailureOfAServerReachesTheClient checks that neither load balancer retries a request.
func TestFailureOfAServerReachesTheClient(t *testing.T) {
	both(t, func(t *testing.T, b balancer) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := listener.Addr().String()
		_ = listener.Close()
		good, _, _ := backend(t, "good")
		serve(t, b, "gone", address)
		serve(t, b, "good", good)
		failed := 0
		for range 10 {
			status, server, _, err := get(b, "/")
			if err != nil {
				t.Fatal(err)
			}
			if status >= 500 {
				failed++
				if server != "gone" {
					t.Errorf("%q failed", server)
				}
			}
		}
		if failed != 5 {
			t.Errorf("%d of 10 failed, want the 5 of the stopped server", failed)
		}
	})
}

func TestCheckTakesOutAServerAndPutsItBack(t *testing.T) {
	both(t, func(t *testing.T, b balancer) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := listener.Addr().String()
		_ = listener.Close()
		serve(t, b, "a", address, "check", "inter", "20ms")
		if got := command(t, b, "enable health web/a"); got != "\n" {
			t.Fatal(got)
		}
		passed := func() string {
			const operation, result = 5, 11
			for line := range strings.Lines(command(t, b, "show servers state web")) {
				if columns := strings.Fields(line); len(columns) > result && columns[3] == "a" {
					return columns[operation] + " " + columns[result]
				}
			}
			return "no such server"
		}
		await.Until(t, "the check fails and takes the server out", func() bool { return passed() == "0 2" })
		back, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		pod := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: patience}
		t.Cleanup(func() { _ = pod.Close() })
		go func() { _ = pod.Serve(back) }()
		await.Until(t, "the check passes and puts the server back", func() bool { return passed() == "2 3" })
		if status, server, _, err := get(b, "/"); err != nil || status != http.StatusNotFound || server != "a" {
			t.Errorf("got %d of %q, %v; want the 404 of a", status, server, err)
		}
	})
}

func TestCloseRemovesSocketAndListener(t *testing.T) {
	both(t, func(t *testing.T, b balancer) {
		idle, err := net.Dial("unix", b.Socket())
		if err != nil {
			t.Fatal(err)
		}
		defer idle.Close()
		began := time.Now()
		for range 2 {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(began); took > patience/2 {
			t.Errorf("a silent client delays Close by %s", took)
		}
		await.Receive(t, "it ends", b.Ended())
		if _, err := os.Stat(b.Socket()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket: %v, want none", err)
		}
		if conn, err := net.Dial("tcp", b.Address()); err == nil {
			_ = conn.Close()
			t.Error("it still listens")
		}
	})
}

func TestContextEndsWithHAProxy(t *testing.T) {
	h, err := StartHAProxy(t.Context(), Options{Dir: folder(t), Program: installed(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closing(t, h) })
	ctx, stop := h.While(t.Context())
	defer stop()
	if err := ctx.Err(); err != nil {
		t.Fatalf("it ended before HAProxy did: %v", err)
	}
	if err := h.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ctx.Done():
	case <-time.After(patience):
		t.Fatal("it outlives HAProxy")
	}
	if cause := context.Cause(ctx); !errors.Is(cause, ErrEnded) || !strings.Contains(cause.Error(), "killed") {
		t.Errorf("the cause is %v, want %v and the signal", cause, ErrEnded)
	}
}
