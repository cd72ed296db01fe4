package draining

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// service leads new connections to one of two servers, as kube-proxy does. Connections that are open stay where they are.
type service struct{ address atomic.Value }

func (s *service) dial(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", s.address.Load().(string))
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// callDrain returns the status of the drain endpoint.
func callDrain(t *testing.T, url string) int {
	t.Helper()
	answer, err := http.Post(url, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	return answer.StatusCode
}

// drained calls as PodOps does, until no connection is left, and returns the number of answers before.
func drained(t *testing.T, url string) (before int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if callDrain(t, url) == http.StatusOK {
			return before
		}
		before++
	}
	t.Fatal("connections are left after a minute")
	return 0
}

// reach waits until a count has been reached.
func reach(t *testing.T, count *atomic.Int64, enough int64) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); count.Load() < enough; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d after a minute", count.Load(), enough)
		}
	}
}

// TestHTTP drains a server under clients that keep their connections and repeat no request, and kills it. No request fails.
func TestHTTP(t *testing.T) {
	t.Parallel()
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stream" {
			time.Sleep(300 * time.Millisecond)
		}
		_, _ = io.WriteString(w, "done")
	})
	first, drain := listen(t), listen(t)
	server := &http.Server{Handler: answer}
	endpoint := &http.Server{Handler: drainHTTP(server)}
	go server.Serve(first)   //nolint:errcheck // it is closed
	go endpoint.Serve(drain) //nolint:errcheck // as above
	defer endpoint.Close()
	second := httptest.NewServer(answer)
	defer second.Close()
	var clients service
	clients.address.Store(first.Addr().String())
	stop := make(chan struct{})
	var running sync.WaitGroup
	var sent, failed atomic.Int64
	for n := range 8 {
		running.Go(func() {
			client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return clients.dial(ctx) }}}
			defer client.CloseIdleConnections()
			path := []string{"/", "/stream"}[n%2]
			for {
				select {
				case <-stop:
					return
				case <-time.After(2 * time.Millisecond):
				}
				// A request with a body that cannot be read twice is sent once.
				response, err := client.Post("http://web"+path, "", io.NopCloser(strings.NewReader("x")))
				sent.Add(1)
				if err == nil {
					_, err = io.ReadAll(response.Body)
					response.Body.Close()
				}
				if err != nil {
					failed.Add(1)
					t.Error(err)
				}
			}
		})
	}
	reach(t, &sent, 200)
	clients.address.Store(second.Listener.Addr().String())
	if drained(t, "http://"+drain.Addr().String()+"/drain") == 0 {
		t.Error("the first answer is that no connection is left")
	}
	server.Close()
	reach(t, &sent, sent.Load()+200)
	close(stop)
	running.Wait()
	t.Logf("%d of %d requests failed", failed.Load(), sent.Load())
}

// TestHTTPServesAgain shows that a server whose operation was cancelled keeps connections again.
func TestHTTPServesAgain(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	handler := drainHTTP(server.Config)
	closes := func() bool {
		recorder := httptest.NewRecorder()
		server.Config.Handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		return recorder.Header().Get("Connection") == "close"
	}
	if closes() {
		t.Error("it ends connections before it is called")
	}
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/drain", nil))
	if !closes() {
		t.Error("it keeps connections while it drains")
	}
	for deadline := time.Now().Add(time.Minute); closes(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it ends connections a minute after the last call")
		}
	}
}

// TestGRPC drains a server with an open stream, under a client that calls it all the time. No call fails, and the server
// serves again.
func TestGRPC(t *testing.T) {
	t.Parallel()
	newServer := func() *grpc.Server {
		server := grpc.NewServer()
		grpc_health_v1.RegisterHealthServer(server, health.NewServer())
		return server
	}
	free := listen(t)
	first := free.Addr().String()
	free.Close()
	handler, failed := serveGRPC(func() (net.Listener, error) { return net.Listen("tcp", first) }, newServer)
	endpoint := httptest.NewServer(handler)
	defer endpoint.Close()
	other := listen(t)
	second := newServer()
	go second.Serve(other) //nolint:errcheck // it is stopped
	defer second.Stop()

	var clients service
	clients.address.Store(first)
	conn, err := grpc.NewClient("passthrough:///web", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return clients.dial(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := grpc_health_v1.NewHealthClient(conn)
	ready := grpc.WaitForReady(true) // a connection is made, not a call repeated
	streaming, endStream := context.WithCancel(t.Context())
	stream, err := client.Watch(streaming, &grpc_health_v1.HealthCheckRequest{}, ready)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var calling sync.WaitGroup
	var calls atomic.Int64
	calling.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}, ready); err != nil {
				t.Errorf("call %d: %v", calls.Load(), err)
			}
			calls.Add(1)
		}
	})
	reach(t, &calls, 100)
	clients.address.Store(other.Addr().String())
	if status := callDrain(t, endpoint.URL); status != http.StatusAccepted {
		t.Errorf("status %d although a stream is open", status)
	}
	endStream()
	drained(t, endpoint.URL)
	reach(t, &calls, calls.Load()+100)
	close(stop)
	calling.Wait()
	again, err := grpc.NewClient(first, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if _, err := grpc_health_v1.NewHealthClient(again).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}, ready); err != nil {
		t.Errorf("the server that has drained does not serve again: %v", err)
	}
	select {
	case err := <-failed:
		t.Error(err)
	default:
	}
}

// TestThePageHasTheFunctions shows that docs/draining.md prints the functions that these tests run.
func TestThePageHasTheFunctions(t *testing.T) {
	page, err := os.ReadFile("../../docs/draining.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"http.go", "grpc.go"} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, function, _ := strings.Cut(string(source), "\n\n// ")
		_, function, _ = strings.Cut(function, "\nfunc ")
		function, _, _ = strings.Cut("func "+function, "\n}\n")
		if !strings.Contains(string(page), function+"\n}\n") {
			t.Errorf("docs/draining.md differs from %s:\n%s\n}", file, function)
		}
	}
}
