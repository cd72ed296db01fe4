package webhookclient

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask"
)

// local allows tests to reach their own servers.
func local() Guard {
	return Guard{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
}

// short deadlines for services that never answer. On a busy machine it takes a while until such a service has received
// a request.
func short() Timeouts {
	return Timeouts{Connect: 5 * time.Second, Header: 2 * time.Second, Try: 3 * time.Second, Total: 8 * time.Second, Wait: 2 * time.Second}
}

// service answers like a real one, and counts.
type service struct {
	*httptest.Server
	mu   sync.Mutex
	seen map[string]int
}

// serve starts a service. Traces are counted before the handler is called.
func serve(t *testing.T, handler http.HandlerFunc) *service {
	s := &service{seen: map[string]int{}}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			var request PostRequest
			body, _ := io.ReadAll(r.Body)
			_ = json.Unmarshal(body, &request)
			s.mu.Lock()
			s.seen[request.TraceID]++
			s.mu.Unlock()
		}
		handler(w, r)
	}))
	s.Config.ErrorLog = quiet()
	s.Start()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// posts returns how many POSTs with a trace id the service has received.
func (s *service) posts(trace string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[trace]
}

func answer(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
}

func post(t *testing.T, timeouts Timeouts, endpoint Endpoint) (webhooktask.PostAnswer, error) {
	t.Helper()
	client := NewClient(local(), timeouts)
	t.Cleanup(client.CloseIdle)
	return client.Post(t.Context(), endpoint, PostRequest{TraceID: "trace-1", Stage: "PreCheck", RuleName: "approval"})
}

func poll(t *testing.T, timeouts Timeouts, endpoint Endpoint) (webhooktask.PollAnswer, error) {
	t.Helper()
	client := NewClient(local(), timeouts)
	t.Cleanup(client.CloseIdle)
	return client.Poll(t.Context(), endpoint, []string{"task-id"}, "task-7")
}

func TestPostAndPoll(t *testing.T) {
	var requests []string
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		requests = append(requests, r.Method+" "+r.URL.String())
		if r.Method == http.MethodGet {
			answer(`{"success":true,"finished":true}`)(w, r)
			return
		}
		answer(`{"success":true,"poll":true,"taskId":"task-7"}`)(w, r)
	})
	posted, err := post(t, Timeouts{}, Endpoint{URL: s.URL + "/post?a=1"})
	if err != nil {
		t.Fatal(err)
	}
	polled, err := poll(t, Timeouts{}, Endpoint{URL: s.URL + "/fetch?a=1"})
	if err != nil {
		t.Fatal(err)
	}
	if !posted.Success || !posted.Poll || posted.TaskID != "task-7" || !polled.Success || !polled.Finished {
		t.Errorf("answers %+v, %+v", posted, polled)
	}
	if diff := cmp.Diff([]string{"POST /post?a=1", "GET /fetch?a=1&task-id=task-7"}, requests); diff != "" {
		t.Errorf("requests differ (-want +got):\n%s", diff)
	}
}

func TestRequestsHaveNoUnnecessaryHeaders(t *testing.T) {
	var got http.Header
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Clone()
		http.SetCookie(w, &http.Cookie{Name: "session", Value: "1"})
		answer(`{"success":true}`)(w, r)
	})
	client := NewClient(local(), Timeouts{})
	defer client.CloseIdle()
	for range 2 {
		if _, err := client.Post(t.Context(), Endpoint{URL: s.URL}, PostRequest{TraceID: "trace-1"}); err != nil {
			t.Fatal(err)
		}
	}
	want := http.Header{"User-Agent": {"podops"}, "Accept": {"application/json"}, "Content-Type": {"application/json"}}
	got.Del("Content-Length")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("headers differ (-want +got):\n%s", diff)
	}
}

func TestProxiesOfTheEnvironmentAreNotUsed(t *testing.T) {
	// Go reads the environment once for each process, and never for loopback addresses, so this is
	// the only place where it has an effect.
	on, err := NewClient(local(), Timeouts{}).transports.client(Endpoint{URL: "http://approvals/"})
	if err != nil {
		t.Fatal(err)
	}
	if on.Transport.(refuseRedirects).Proxy != nil {
		t.Error("a proxy may be used")
	}
}

func TestConnectionRefused(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + listener.Addr().String()
	_ = listener.Close()
	_, err = post(t, Timeouts{}, Endpoint{URL: url})
	failure := wantFailure(t, err, ClassRefused)
	if failure.Sent {
		t.Error("a refused connection counts as a request that may have been received")
	}
}

func TestRefusedConnectionsAreTriedAgainUnderTheSameTrace(t *testing.T) {
	s := serve(t, answer(`{"success":true}`))
	var dials atomic.Int32
	client := NewClient(local(), Timeouts{})
	defer client.CloseIdle()
	failing := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if dials.Add(1) < MaxTries {
				address = "127.0.0.1:1"
			}
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}}}
	replaceTransport(t, client, Endpoint{URL: s.URL}, failing)
	if _, err := client.Post(t.Context(), Endpoint{URL: s.URL}, PostRequest{TraceID: "trace-1"}); err != nil {
		t.Fatal(err)
	}
	if dials.Load() != MaxTries || s.posts("trace-1") != 1 {
		t.Errorf("%d connections and %d POSTs, want %d and 1", dials.Load(), s.posts("trace-1"), MaxTries)
	}
}

// replaceTransport makes a client use another transport for an endpoint.
func replaceTransport(t *testing.T, client *Client, endpoint Endpoint, with *http.Client) {
	t.Helper()
	if _, err := client.transports.client(endpoint); err != nil {
		t.Fatal(err)
	}
	client.transports.ready.Add(identity(endpoint), with)
}

func TestNamesThatDoNotResolve(t *testing.T) {
	_, err := post(t, short(), Endpoint{URL: "http://no-such-host.invalid/?token=secret"})
	failure := AsFailure(err)
	// Without a name server in reach, the lookup itself times out.
	if failure == nil || failure.Class != ClassDNS && failure.Class != ClassTimeout || failure.Sent || strings.Contains(failure.Error(), "secret") {
		t.Errorf("failure %+v", failure)
	}
}

func TestAPostThatWasReceivedIsNeverRepeated(t *testing.T) {
	hijacked := func(t *testing.T, w http.ResponseWriter, then func(net.Conn)) {
		connection, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		then(connection)
		_ = connection.Close()
	}
	for name, tc := range map[string]struct {
		handler func(*testing.T, http.ResponseWriter, *http.Request)
		class   Class
	}{
		"reset after the request was read": {func(t *testing.T, w http.ResponseWriter, _ *http.Request) {
			hijacked(t, w, func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) })
		}, ClassConnectionBroken},
		"closed after the request was read": {func(t *testing.T, w http.ResponseWriter, _ *http.Request) {
			hijacked(t, w, func(net.Conn) {})
		}, ClassConnectionBroken},
		"closed within the headers": {func(t *testing.T, w http.ResponseWriter, _ *http.Request) {
			hijacked(t, w, func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Le") })
		}, ClassConnectionBroken},
		"closed within the body": {func(t *testing.T, w http.ResponseWriter, _ *http.Request) {
			hijacked(t, w, func(c net.Conn) {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"success\":true}")
			})
		}, ClassConnectionBroken},
		"not HTTP": {func(t *testing.T, w http.ResponseWriter, _ *http.Request) {
			hijacked(t, w, func(c net.Conn) { _, _ = io.WriteString(c, "SSH-2.0-OpenSSH_9.9\r\n") })
		}, ClassConnectionBroken},
		"no answer": {func(_ *testing.T, _ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
		}, ClassTimeout},
		"500": {func(_ *testing.T, w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
		}, ClassHTTPStatus},
		"503 without Retry-After": {func(_ *testing.T, w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
		}, ClassHTTPStatus},
		"503 with a long Retry-After": {func(_ *testing.T, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(http.StatusServiceUnavailable)
		}, ClassHTTPStatus},
		"an answer that cannot be read": {func(_ *testing.T, w http.ResponseWriter, r *http.Request) {
			answer("oops")(w, r)
		}, ClassBadResponse},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, func(w http.ResponseWriter, r *http.Request) { tc.handler(t, w, r) })
			timeouts := Timeouts{}
			if tc.class == ClassTimeout {
				timeouts = short()
			}
			_, err := post(t, timeouts, Endpoint{URL: s.URL})
			failure := wantFailure(t, err, tc.class)
			if !failure.Sent {
				t.Error("the failure counts as not sent")
			}
			if s.posts("trace-1") != 1 {
				t.Errorf("%d POSTs, want 1", s.posts("trace-1"))
			}
		})
	}
}

func TestAnIdleConnectionThatBreaksDoesNotRepeatAPost(t *testing.T) {
	var connections atomic.Int32
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if connections.Add(1) == 1 {
			answer(`{"success":true}`)(w, r)
			return
		}
		// The second request on an idle connection is read, and the connection is closed.
		connection, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_ = connection.Close()
		}
	})
	client := NewClient(local(), Timeouts{})
	defer client.CloseIdle()
	if _, err := client.Post(t.Context(), Endpoint{URL: s.URL}, PostRequest{TraceID: "trace-1"}); err != nil {
		t.Fatal(err)
	}
	_, err := client.Post(t.Context(), Endpoint{URL: s.URL}, PostRequest{TraceID: "trace-2"})
	wantClass(t, err, ClassConnectionBroken)
	if s.posts("trace-2") != 1 {
		t.Errorf("%d POSTs, want 1", s.posts("trace-2"))
	}
}

func TestAServiceWithRetryAfterIsCalledAgain(t *testing.T) {
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		var tries atomic.Int32
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if tries.Add(1) == 1 {
				w.Header().Set("Retry-After", "0")
				w.WriteHeader(status)
				return
			}
			answer(`{"success":true}`)(w, r)
		})
		got, err := post(t, Timeouts{}, Endpoint{URL: s.URL})
		if err != nil || !got.Success {
			t.Errorf("HTTP %d: %+v, %v", status, got, err)
		}
		if s.posts("trace-1") != 2 {
			t.Errorf("HTTP %d: %d POSTs under one trace id, want 2", status, s.posts("trace-1"))
		}
	}
}

func TestTriesAreBounded(t *testing.T) {
	var tries atomic.Int32
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		tries.Add(1)
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	_, err := post(t, Timeouts{}, Endpoint{URL: s.URL})
	wantClass(t, err, ClassHTTPStatus)
	if tries.Load() != MaxTries {
		t.Errorf("%d tries, want %d", tries.Load(), MaxTries)
	}
}

func TestPollsAreTriedAgain(t *testing.T) {
	var tries atomic.Int32
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch tries.Add(1) {
		case 1:
			w.WriteHeader(http.StatusBadGateway)
		case 2:
			if connection, _, err := w.(http.Hijacker).Hijack(); err == nil {
				_ = connection.Close()
			}
		default:
			answer(`{"success":true,"finished":true}`)(w, r)
		}
	})
	got, err := poll(t, Timeouts{}, Endpoint{URL: s.URL})
	if err != nil || !got.Finished {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestRetryAfterDelaysTheNextCallForABoundedTime(t *testing.T) {
	for _, value := range []string{"999999999", "Fri, 31 Dec 9999 23:59:59 GMT", "9223372036854775808"} {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", value)
			w.WriteHeader(http.StatusTooManyRequests)
		})
		_, err := poll(t, Timeouts{}, Endpoint{URL: s.URL})
		if failure := wantFailure(t, err, ClassHTTPStatus); failure.RetryAfter != MaxRetryAfter {
			t.Errorf("%s: retry after %v, want %v", value, failure.RetryAfter, MaxRetryAfter)
		}
	}
}

func TestRedirectsAreRejected(t *testing.T) {
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, location := range []string{"http://169.254.169.254/latest?token=secret", "/elsewhere", ":bad url:", ""} {
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", location)
				w.WriteHeader(status)
			})
			_, err := post(t, Timeouts{}, Endpoint{URL: s.URL})
			failure := wantFailure(t, err, ClassRedirectRefused)
			if strings.Contains(failure.Message, "secret") || s.posts("trace-1") != 1 {
				t.Errorf("HTTP %d to %q: %s, %d POSTs", status, location, failure.Message, s.posts("trace-1"))
			}
		}
	}
}

func TestStopping(t *testing.T) {
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	ctx, cancel := context.WithCancel(t.Context())
	client := NewClient(local(), Timeouts{})
	time.AfterFunc(50*time.Millisecond, cancel)
	_, err := client.Poll(ctx, Endpoint{URL: s.URL}, []string{"task-id"}, "7")
	wantClass(t, err, ClassCanceled)
}

func TestTransportsAreBounded(t *testing.T) {
	s := serve(t, answer(`{"success":true}`))
	client := NewClient(local(), Timeouts{})
	defer client.CloseIdle()
	bundle := newAuthority(t, "any").pem
	for i := range maxTransports + 10 {
		endpoint := Endpoint{URL: s.URL, CABundle: bundle + strings.Repeat("\n", i)}
		if _, err := client.Post(t.Context(), endpoint, PostRequest{TraceID: "t"}); err != nil {
			t.Fatal(err)
		}
	}
	if kept := client.transports.ready.Len(); kept != maxTransports {
		t.Errorf("%d transports are kept, want %d", kept, maxTransports)
	}
}
