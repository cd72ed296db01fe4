package runtimeapi_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/podops-dev/podops/pkg/adapters/haproxy/haproxytest"
	"github.com/podops-dev/podops/pkg/adapters/haproxy/runtimeapi"
	"github.com/podops-dev/podops/test/await"
)

func connect(t *testing.T, text string) *runtimeapi.Client {
	t.Helper()
	endpoint, err := runtimeapi.ParseEndpoint(text)
	if err != nil {
		t.Fatal(err)
	}
	return runtimeapi.New(endpoint, 0)
}

// awaitServer polls until a server is as wanted.
func awaitServer(t *testing.T, client *runtimeapi.Client, name, wanted string, is func(runtimeapi.Server) bool) runtimeapi.Server {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		servers, err := client.Servers(t.Context(), haproxytest.Backend)
		if err == nil && is(servers[name]) {
			return servers[name]
		}
		if time.Now().After(deadline) {
			t.Fatalf("server %s is not %s: %+v, %v", name, wanted, servers[name], err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestTheLifeOfAServer(t *testing.T) {
	proxy := haproxytest.Start(t)
	held, released := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	origin := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(held)
			<-released
		}
	}))
	t.Cleanup(origin.Close)
	t.Cleanup(release) // first, since Close waits for requests
	for _, endpoint := range []string{"unix:" + proxy.Socket, "tcp:" + proxy.Runtime} {
		if servers, err := connect(t, endpoint).Servers(t.Context(), haproxytest.Backend); err != nil || len(servers) != 0 {
			t.Fatalf("servers at the start, by %s: %v, %v", endpoint, servers, err)
		}
	}
	client, ctx := connect(t, "unix:"+proxy.Socket), t.Context()
	address := netip.MustParseAddrPort(origin.Listener.Addr().String())
	server := runtimeapi.NewServer{Name: "ns_svc_pod-0_1234", Address: address, Weight: 100}
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}

	must("adding", client.Add(ctx, "web", server))
	if err := client.Add(ctx, "web", server); !errors.Is(err, runtimeapi.ErrExists) {
		t.Errorf("adding twice: %v, want ErrExists", err)
	}
	got := awaitServer(t, client, server.Name, "in maintenance", func(s runtimeapi.Server) bool { return s.State == runtimeapi.StateMaint })
	if got.Address != address || got.Weight != 100 || got.Serves() {
		t.Errorf("a server that was just added: %+v", got)
	}
	must("ready", client.SetState(ctx, "web", server.Name, runtimeapi.StateReady))
	must("ready again", client.SetState(ctx, "web", server.Name, runtimeapi.StateReady))
	must("weight", client.SetWeight(ctx, "web", server.Name, 7))
	if got = awaitServer(t, client, server.Name, "serving", runtimeapi.Server.Serves); got.Weight != 7 {
		t.Errorf("weight is %d, want 7", got.Weight)
	}
	if err := client.Delete(ctx, "web", server.Name); !errors.Is(err, runtimeapi.ErrBusy) {
		t.Errorf("deleting a server that takes traffic: %v, want ErrBusy", err)
	}

	ended := make(chan error, 1)
	go func() {
		response, err := http.Get("http://" + proxy.Front + "/slow")
		if err == nil {
			err = response.Body.Close()
		}
		ended <- err
	}()
	await.Receive(t, "the request is with its server", held)
	must("draining", client.SetState(ctx, "web", server.Name, runtimeapi.StateDrain))
	awaitServer(t, client, server.Name, "draining with a session", func(s runtimeapi.Server) bool {
		return s.State == runtimeapi.StateDrain && s.Sessions == 1
	})
	release()
	must("the open request", await.Receive(t, "its end", ended))
	awaitServer(t, client, server.Name, "without sessions", func(s runtimeapi.Server) bool { return s.Sessions == 0 })

	must("maintenance", client.SetState(ctx, "web", server.Name, runtimeapi.StateMaint))
	must("moving", client.SetAddress(ctx, "web", server.Name, netip.MustParseAddrPort("[::1]:81")))
	must("moving there again", client.SetAddress(ctx, "web", server.Name, netip.MustParseAddrPort("[::1]:81")))
	awaitServer(t, client, server.Name, "elsewhere", func(s runtimeapi.Server) bool { return s.Address == netip.MustParseAddrPort("[::1]:81") })
	must("deleting", client.Delete(ctx, "web", server.Name))
	for what, err := range map[string]error{
		"delete": client.Delete(ctx, "web", server.Name), "state": client.SetState(ctx, "web", server.Name, runtimeapi.StateMaint),
		"end": client.EndSessions(ctx, "web", server.Name), "weight": client.SetWeight(ctx, "web", server.Name, 1),
		"address": client.SetAddress(ctx, "web", server.Name, address), "check": client.EnableCheck(ctx, "web", server.Name),
	} {
		if !errors.Is(err, runtimeapi.ErrNoServer) {
			t.Errorf("%s of a deleted server: %v, want ErrNoServer", what, err)
		}
	}
}

func TestAServerTakesTrafficOnceItsCheckPasses(t *testing.T) {
	proxy := haproxytest.Start(t, "option httpchk GET /healthz")
	healthy := make(chan struct{})
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		select {
		case <-healthy:
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(origin.Close)
	client, ctx := connect(t, "tcp:"+proxy.Runtime), t.Context()
	address := netip.MustParseAddrPort(origin.Listener.Addr().String())
	for _, err := range []error{
		client.Add(ctx, "web", runtimeapi.NewServer{Name: "a", Address: address, Weight: 1, CheckEvery: 10 * time.Millisecond}),
		client.SetState(ctx, "web", "a", runtimeapi.StateDrain),
		client.EnableCheck(ctx, "web", "a"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	awaitServer(t, client, "a", "checked and found down while it drains", func(s runtimeapi.Server) bool {
		return s.Checked && !s.Running && s.State == runtimeapi.StateDrain
	})
	close(healthy)
	awaitServer(t, client, "a", "checked and found up while it drains", func(s runtimeapi.Server) bool { return s.Running && s.Passed })
	if err := client.SetState(ctx, "web", "a", runtimeapi.StateReady); err != nil {
		t.Fatal(err)
	}
	awaitServer(t, client, "a", "serving", runtimeapi.Server.Serves)
}

func TestUnknownBackendsAreAnError(t *testing.T) {
	proxy := haproxytest.Start(t)
	client, ctx := connect(t, "unix:"+proxy.Socket), t.Context()
	_, readErr := client.Servers(ctx, "nope")
	addErr := client.Add(ctx, "nope", runtimeapi.NewServer{Name: "a", Address: netip.MustParseAddrPort("127.0.0.1:1")})
	for what, err := range map[string]error{"reading": readErr, "adding": addErr} {
		if !errors.Is(err, runtimeapi.ErrNoBackend) || !strings.Contains(err.Error(), "nope") {
			t.Errorf("%s: %v, want ErrNoBackend and the name", what, err)
		}
	}
}

func TestTheClientWorksAfterARestartOfHAProxy(t *testing.T) {
	proxy := haproxytest.Start(t)
	client, ctx := connect(t, "unix:"+proxy.Socket), t.Context()
	if err := client.Add(ctx, "web", runtimeapi.NewServer{Name: "a", Address: netip.MustParseAddrPort("127.0.0.1:1")}); err != nil {
		t.Fatal(err)
	}
	proxy.Stop(t)
	if _, err := client.Servers(ctx, "web"); err == nil {
		t.Error("no error while HAProxy is down")
	}
	proxy.Run(t)
	servers, err := client.Servers(ctx, "web")
	if err != nil || len(servers) != 0 {
		t.Errorf("after a restart: %v, %v, want no servers: they were added at run time", servers, err)
	}
}
