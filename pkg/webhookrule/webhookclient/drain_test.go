package webhookclient_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/webhookrule/webhookclient"
)

// loopback allows the addresses of this machine, on which the servers of tests listen.
func loopback() webhookclient.Guard {
	return webhookclient.Guard{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
}

// drain calls the drain endpoint of a server.
func drain(ctx context.Context, server *httptest.Server, guard webhookclient.Guard) (bool, string) {
	at := netip.MustParseAddrPort(server.Listener.Addr().String())
	return webhookclient.NewDrainClient(guard).Drain(ctx, at.Addr().String(), lifecycle.DrainEndpoint{Port: at.Port(), Path: "/drain"})
}

func TestDrainReadsTheStatus(t *testing.T) {
	for status, drained := range map[int]bool{200: true, 204: true, 201: false, 202: false, 400: false, 404: false, 405: false, 500: false, 503: false} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost || r.URL.Path != "/drain" || r.ContentLength != 0 || !r.Close {
				t.Errorf("%s %s, %d bytes, closes %t", r.Method, r.URL, r.ContentLength, r.Close)
			}
			w.WriteHeader(status)
		}))
		got, answer := drain(t.Context(), server, loopback())
		if got != drained || answer != fmt.Sprintf("answers %d", status) {
			t.Errorf("status %d: drained %t, it %s", status, got, answer)
		}
		server.Close()
	}
}

func TestDrainFollowsNoRedirect(t *testing.T) {
	var followed atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/drain" {
			followed.Store(true)
			return
		}
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	}))
	defer server.Close()
	if drained, answer := drain(t.Context(), server, loopback()); drained || answer != "redirects, which PodOps does not follow" || followed.Load() {
		t.Errorf("drained %t, it %s, followed %t", drained, answer, followed.Load())
	}
}

func TestDrainReachesAllowedAddressesOnly(t *testing.T) {
	var called atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called.Store(true) }))
	defer server.Close()
	const want = "has an address that may not be called: address 127.0.0.1 is a loopback address, which webhook rules and drain endpoints may not reach: " +
		"an administrator can allow it with --rule-webhook-allow-cidr or --rule-webhook-allow-host"
	if drained, answer := drain(t.Context(), server, webhookclient.Guard{}); drained || answer != want || called.Load() {
		t.Errorf("drained %t, called %t, it %s", drained, called.Load(), answer)
	}
}

// TestDrainEnds shows that endpoints that hang, answer without end or do not listen end the call in time.
func TestDrainEnds(t *testing.T) {
	hanging := make(chan struct{})
	defer close(hanging)
	for name, handler := range map[string]http.HandlerFunc{
		"hangs": func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-hanging:
			case <-r.Context().Done():
			}
		},
		"is gone": nil,
	} {
		server := httptest.NewServer(handler)
		if handler == nil {
			server.Close()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if drained, answer := drain(ctx, server, loopback()); drained || answer != "cannot be reached" {
			t.Errorf("an endpoint that %s: drained %t, it %s", name, drained, answer)
		}
		cancel()
		server.Close()
	}
	endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 1<<10)); err != nil {
				return
			}
		}
	}))
	defer endless.Close()
	if drained, answer := drain(t.Context(), endless, loopback()); !drained || answer != "answers 200" {
		t.Errorf("an endpoint that answers without end: drained %t, it %s", drained, answer)
	}
}
