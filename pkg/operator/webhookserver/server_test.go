package webhookserver_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/podops-dev/podops/pkg/operator/webhookserver"
	"github.com/podops-dev/podops/pkg/webhooks/clientauth"
	"github.com/podops-dev/podops/test/await"
)

// patience is the timeout for changes that are immediate on an idle machine.
const patience = 20 * time.Second

// fixture is a server that listens on every loopback address, so that clients have
// addresses of their own, and the CAs of both sides.
type fixture struct {
	server   *webhookserver.Server
	registry *prometheus.Registry
	stop     context.CancelFunc
	ended    chan error
	draining atomic.Bool
	roots    *x509.CertPool
}

// start serves handler at /review and /slow until the test ends.
func start(t *testing.T, edit func(*webhookserver.Options), handler http.HandlerFunc) *fixture {
	t.Helper()
	w := &fixture{registry: prometheus.NewRegistry(), ended: make(chan error, 1), roots: x509.NewCertPool()}
	authority := newAuthority(t)
	w.roots.AddCert(authority.cert)
	serving := authority.issue(t, "podops-webhook", "127.0.0.1")
	metrics, err := webhookserver.NewMetrics(w.registry)
	if err != nil {
		t.Fatal(err)
	}
	options := webhookserver.Options{
		Address: "127.0.0.1:0", Metrics: metrics, Slow: []string{"/slow"}, Limits: webhookserver.DefaultLimits(), Draining: w.draining.Load,
		ConfigureTLS: func(config *tls.Config) { config.Certificates = []tls.Certificate{serving} },
	}
	edit(&options)
	if w.server, err = webhookserver.New(options); err != nil {
		t.Fatal(err)
	}
	w.server.Register("/review", handler)
	w.server.Register("/slow", handler)
	ctx, cancel := context.WithCancel(context.Background())
	w.stop = cancel
	go func() { w.ended <- w.server.Start(ctx) }()
	t.Cleanup(func() {
		w.stop()
		if err := await.Receive(t, "the server ends", w.ended); err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	await.Until(t, "the server to listen", func() bool { return w.server.StartedChecker()(nil) == nil })
	return w
}

// dial connects from the loopback address 127.0.0.<n>.
func (w *fixture) dial(t *testing.T, n int) *tls.Conn {
	t.Helper()
	dialer := &tls.Dialer{
		NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(n))}, Timeout: patience},
		Config:    &tls.Config{RootCAs: w.roots, ServerName: "127.0.0.1", NextProtos: []string{"http/1.1"}},
	}
	conn, err := dialer.DialContext(t.Context(), "tcp", w.server.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn.(*tls.Conn)
}

// client returns a client that sends from one loopback address, by HTTP/2.
func (w *fixture) client(n int, certificates ...tls.Certificate) *http.Client {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(n))}}
	return &http.Client{Timeout: patience, Transport: &http.Transport{
		DialContext: dialer.DialContext, ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{RootCAs: w.roots, Certificates: certificates},
	}}
}

func (w *fixture) url(path string) string { return "https://" + w.server.Address() + path }

// post returns the status and the body of the response.
func (w *fixture) post(t *testing.T, client *http.Client, path, body string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url(path), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// count returns the sum of a counter over its labels.
func (w *fixture) count(t *testing.T, name string) float64 {
	t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	total := 0.0
	for _, family := range families {
		if family.GetName() == name {
			for _, metric := range family.GetMetric() {
				total += metric.GetCounter().GetValue()
			}
		}
	}
	return total
}

func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	fmt.Fprintf(w, "%d bytes, verified %t", len(body), clientauth.Verified(r.Context()))
}

func TestAReviewReachesItsHandler(t *testing.T) {
	w := start(t, func(*webhookserver.Options) {}, echo)
	if code, text := w.post(t, w.client(2), "/review?timeout=3s", "hello"); code != http.StatusOK || text != "5 bytes, verified false" {
		t.Errorf("got %d %q", code, text)
	}
}

// TestReviewsAtOnceHaveTheirOwnBodies, in buffers that earlier reviews of other contents have used.
func TestReviewsAtOnceHaveTheirOwnBodies(t *testing.T) {
	const atOnce, rounds = 4, 5
	arrived := make(chan chan struct{})
	go func() {
		for range 2 * rounds {
			waiting := make([]chan struct{}, 0, atOnce)
			for range atOnce {
				waiting = append(waiting, <-arrived)
			}
			for _, proceed := range waiting {
				close(proceed)
			}
		}
	}()
	w := start(t, func(*webhookserver.Options) {}, func(w http.ResponseWriter, r *http.Request) {
		proceed := make(chan struct{})
		arrived <- proceed
		<-proceed // all bodies are in memory
		body := r.Body.(interface{ Bytes() []byte }).Bytes()
		if strings.Trim(string(body), string(body[:1])) != "" {
			http.Error(w, "a body of several reviews", http.StatusInternalServerError)
			return
		}
		fmt.Fprintf(w, "%d times %c", len(body), body[0])
	})
	client := w.client(2)
	for _, path := range []string{"/review", "/slow"} {
		for round := range rounds {
			var posts sync.WaitGroup
			for i := range atOnce {
				posts.Go(func() {
					size, letter := 40<<10+round*5000+i, string(rune('a'+round*atOnce+i))
					code, text := w.post(t, client, path, strings.Repeat(letter, size))
					if want := fmt.Sprintf("%d times %s", size, letter); code != http.StatusOK || text != want {
						t.Errorf("got %d %q, want %q", code, text, want)
					}
				})
			}
			posts.Wait()
		}
	}
}

func TestRequestsThatAreNoReviewsAreRejected(t *testing.T) {
	w := start(t, func(o *webhookserver.Options) { o.Limits.ReviewBytes = 1000 }, echo)
	if code, _ := w.post(t, w.client(2), "/review", strings.Repeat("x", 1001)); code != http.StatusRequestEntityTooLarge {
		t.Errorf("a body of 1001 bytes: %d", code)
	}
	if code, _ := w.post(t, w.client(2), "/nowhere", "{}"); code != http.StatusNotFound {
		t.Errorf("another path: %d", code)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url("/review"), nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := w.client(2).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", answer.StatusCode)
	}
}

// TestHalfSentBodiesGiveWayToOthers shows that a client that announces reviews and does not send them
// keeps its memory until another source needs it.
func TestHalfSentBodiesGiveWayToOthers(t *testing.T) {
	w := start(t, func(o *webhookserver.Options) {
		o.Limits.ReviewBytes = 64 << 10
		o.Limits.PendingBytesPerSource = 2 * (72 << 10)
		o.Limits.PendingBytes = 4 * (72 << 10)
		o.Limits.ReadTimeout, o.Limits.ReviewTimeout = time.Hour, time.Hour // Only the limits of bytes apply.
	}, echo)
	var ended atomic.Int64
	for n := 10; n < 12; n++ {
		for range 2 {
			half := w.dial(t, n)
			go func() {
				_, _ = io.Copy(io.Discard, half) // Ends with the connection.
				ended.Add(1)
			}()
			fmt.Fprintf(half, "POST /review HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", 64<<10, strings.Repeat("x", 60<<10))
		}
	}
	await.Until(t, "the bytes to be taken", func() bool { return w.server.PendingBytes() == 4*(72<<10) })
	for i := range 10 {
		if code, text := w.post(t, w.client(2), "/review", strings.Repeat("x", 60<<10)); code != http.StatusOK {
			t.Errorf("review %d: %d %s", i, code, text)
		}
	}
	evicted := w.count(t, "podops_admission_reviews_evicted_total")
	if evicted < 1 || evicted > 2 {
		t.Errorf("%v half-sent reviews were evicted, want only as many as necessary", evicted)
	}
	await.Until(t, "evicted reviews to end", func() bool { return ended.Load() == int64(evicted) })
}

// TestTheWholeBufferOfABodyCounts, also where it is larger than the body.
func TestTheWholeBufferOfABodyCounts(t *testing.T) {
	w := start(t, func(*webhookserver.Options) {}, echo)
	pending := int64(0)
	for _, announced := range []struct{ body, buffer int64 }{{1000, 1000}, {20 << 10, 20 << 10}, {40 << 10, 64 << 10}, {63 << 10, 64 << 10}, {100 << 10, 100 << 10}} {
		fmt.Fprintf(w.dial(t, 3), "POST /review HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", announced.body)
		pending += announced.buffer + 8<<10
		await.Until(t, fmt.Sprintf("%d bytes for a body of %d", announced.buffer, announced.body), func() bool { return w.server.PendingBytes() == pending })
	}
}

func TestABodyThatDoesNotArriveEnds(t *testing.T) {
	// The handshake has the same limit, and takes longer on a busy machine.
	w := start(t, func(o *webhookserver.Options) { o.Limits.ReadTimeout = 3 * time.Second }, echo)
	half := w.dial(t, 3)
	fmt.Fprint(half, "POST /review HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nxxx")
	if err := half.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(half); err != nil {
		t.Errorf("the connection does not end: %v", err)
	}
	await.Until(t, "the bytes to be released", func() bool { return w.server.PendingBytes() == 0 })
}

func TestAHandshakeThatDoesNotFinishEnds(t *testing.T) {
	w := start(t, func(o *webhookserver.Options) { o.Limits.ReadTimeout = 200 * time.Millisecond }, echo)
	silent, err := net.Dial("tcp", w.server.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if err := silent.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(silent); err != nil {
		t.Errorf("the connection does not end: %v", err)
	}
}

// TestHandshakesArePaced shows that a client that opens connections faster than its rate gets no handshake, that
// another client does, and that an exempt client is not paced.
func TestHandshakesArePaced(t *testing.T) {
	w := start(t, func(o *webhookserver.Options) { o.Limits.ConnectionsPerSecond = 1 }, echo)
	w.server.Exempt(func(source netip.Addr) bool { return source == netip.MustParseAddr("127.0.0.4") })
	handshakes := func(n int) (done int) {
		dialer := &tls.Dialer{
			NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(n))}, Timeout: patience},
			Config:    &tls.Config{RootCAs: w.roots, ServerName: "127.0.0.1"},
		}
		for range 50 {
			if conn, err := dialer.DialContext(t.Context(), "tcp", w.server.Address()); err == nil {
				done++
				_ = conn.Close()
			}
		}
		return done
	}
	began := time.Now()
	if done := handshakes(2); done < 4 || done > 6+int(time.Since(began).Seconds()) {
		t.Errorf("%d of 50 handshakes of a client that is paced, want its burst of 4", done)
	}
	if done := handshakes(3); done < 4 {
		t.Errorf("%d of 50 handshakes of another client, want its burst of 4", done)
	}
	if done := handshakes(4); done != 50 {
		t.Errorf("%d of 50 handshakes of an exempt client, want all", done)
	}
	if closed := w.count(t, "podops_admission_connections_closed_total"); closed < 1 {
		t.Error("no closed connection is counted")
	}
}

func TestConnectionsAreSharedBetweenSources(t *testing.T) {
	w := start(t, func(o *webhookserver.Options) {
		o.Limits.Connections, o.Limits.ConnectionsPerSource = 8, 4
		o.Limits.ReadTimeout, o.Limits.ReviewTimeout, o.Limits.IdleTimeout = time.Hour, time.Hour, time.Hour
	}, echo)
	api := w.client(2)
	if code, _ := w.post(t, api, "/review", "{}"); code != http.StatusOK {
		t.Fatalf("got %d", code)
	}
	for n := 10; n < 14; n++ {
		for range 8 {
			silent, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(n))}}).Dial("tcp", w.server.Address())
			if err != nil {
				t.Fatal(err)
			}
			defer silent.Close()
		}
	}
	await.Until(t, "connections to be closed", func() bool { return w.count(t, "podops_admission_connections_closed_total") >= 24 })
	for i := range 3 {
		if code, _ := w.post(t, api, "/review", "{}"); code != http.StatusOK {
			t.Errorf("the first client, review %d: %d", i, code)
		}
		if code, _ := w.post(t, w.client(20+i), "/review", "{}"); code != http.StatusOK {
			t.Errorf("later client %d: %d", i, code)
		}
	}
}

// TestAFloodDelaysItself shows that a flood of slow reviews from some sources takes no slot that another
// source needs, and that slow reviews take no slot of fast ones.
func TestAFloodDelaysItself(t *testing.T) {
	release := make(chan struct{})
	var once sync.Once
	t.Cleanup(func() { once.Do(func() { close(release) }) })
	w := start(t, func(o *webhookserver.Options) { o.Limits.Running, o.Limits.WaitingPerSource = 2, 3 },
		func(rw http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Flood") != "" {
				<-release
			}
			echo(rw, r)
		})
	var flood sync.WaitGroup
	var busy atomic.Int64
	for range 20 {
		flood.Go(func() {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url("/slow"), strings.NewReader("{}"))
			if err != nil {
				t.Error(err)
				return
			}
			request.Header.Set("Flood", "yes")
			answer, err := w.client(9).Do(request)
			if err != nil {
				t.Error(err)
				return
			}
			answer.Body.Close()
			if answer.StatusCode == http.StatusServiceUnavailable {
				busy.Add(1)
			}
		})
	}
	await.Until(t, "the excess reviews to be rejected", func() bool { return busy.Load() == 15 })
	if code, _ := w.post(t, w.client(2), "/review", "{}"); code != http.StatusOK {
		t.Errorf("a fast review: %d", code)
	}
	once.Do(func() { close(release) })
	flood.Wait()
	if code, _ := w.post(t, w.client(2), "/slow", "{}"); code != http.StatusOK {
		t.Errorf("a slow review: %d", code)
	}
}

// TestAClientThatIsNoAPIServerIsPaced shows that an API server sends as many reviews as it has, and
// other clients no more than their rate.
func TestAClientThatIsNoAPIServerIsPaced(t *testing.T) {
	w := start(t, func(o *webhookserver.Options) { o.Limits.ReviewsPerSecond = 1 }, echo)
	w.server.Exempt(func(source netip.Addr) bool { return source == netip.MustParseAddr("127.0.0.2") })
	refused := func(n int) (count int) {
		var group sync.WaitGroup
		var busy atomic.Int64
		client := w.client(n)
		for range 50 {
			group.Go(func() {
				if code, _ := w.post(t, client, "/review", "{}"); code == http.StatusServiceUnavailable {
					busy.Add(1)
				}
			})
		}
		group.Wait()
		return int(busy.Load())
	}
	if got := refused(9); got == 0 {
		t.Error("all 50 reviews of a client are handled at 1 a second")
	}
	if got := refused(2); got != 0 {
		t.Errorf("%d reviews of the API server are rejected", got)
	}
}

func TestAnAPIServerThatGivesUpEndsItsReview(t *testing.T) {
	w := start(t, func(*webhookserver.Options) {}, func(rw http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		rw.WriteHeader(http.StatusTeapot)
	})
	if code, _ := w.post(t, w.client(2), "/review?timeout=50ms", "{}"); code != http.StatusTeapot {
		t.Errorf("got %d", code)
	}
}

func TestClientsAreVerified(t *testing.T) {
	clients, foreign := newAuthority(t), newAuthority(t)
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, clients.pem(), 0o600); err != nil {
		t.Fatal(err)
	}
	auth, err := webhookserver.NewClientAuth(file, []string{"kube-apiserver"})
	if err != nil {
		t.Fatal(err)
	}
	w := start(t, func(o *webhookserver.Options) { o.ClientAuth = auth }, echo)
	if code, text := w.post(t, w.client(2, clients.issue(t, "kube-apiserver", "")), "/review", "{}"); code != http.StatusOK || !strings.HasSuffix(text, "verified true") {
		t.Errorf("the API server: %d %q", code, text)
	}
	for name, certificates := range map[string][]tls.Certificate{
		"without a certificate":                   nil,
		"with a certificate of another CA":        {foreign.issue(t, "kube-apiserver", "")},
		"with a certificate of another component": {clients.issue(t, "kubelet", "")},
	} {
		answer, err := w.client(3, certificates...).Post(w.url("/review"), "application/json", strings.NewReader("{}"))
		if err == nil {
			answer.Body.Close()
			t.Errorf("%s: %s", name, answer.Status)
		}
	}
	// The CA is rotated: its successor is trusted from the next handshake on.
	if err := os.WriteFile(file, foreign.pem(), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _ := w.post(t, w.client(4, foreign.issue(t, "kube-apiserver", "")), "/review", "{}"); code != http.StatusOK {
		t.Errorf("with the next CA: %d", code)
	}
}

func TestAFileWithoutACAIsRejected(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	if _, err := webhookserver.NewClientAuth(file, nil); err == nil {
		t.Error("a file that is missing is accepted")
	}
	if err := os.WriteFile(file, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := webhookserver.NewClientAuth(file, nil); err == nil {
		t.Error("a file without a certificate is accepted")
	}
}

// TestADrainingServerEndsItsConnections shows that while the process is about to end, each response
// ends its connection: the client's next review goes to another server. No review is lost, whenever
// the server ends.
func TestADrainingServerEndsItsConnections(t *testing.T) {
	w := start(t, func(*webhookserver.Options) {}, func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprint(rw, r.RemoteAddr)
	})
	client := w.client(2)
	_, first := w.post(t, client, "/review", "{}")
	if _, second := w.post(t, client, "/review", "{}"); second != first {
		t.Errorf("the second review comes on a connection of its own: %s, %s", first, second)
	}
	w.draining.Store(true)
	w.post(t, client, "/review", "{}")
	if _, next := w.post(t, client, "/review", "{}"); next == first {
		t.Error("the client stays on its connection")
	}
}

func TestARunningReviewGetsItsResponseAtTheEnd(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	w := start(t, func(*webhookserver.Options) {}, func(rw http.ResponseWriter, r *http.Request) {
		close(began)
		<-release
		if r.Context().Err() != nil {
			rw.WriteHeader(http.StatusTeapot)
		}
	})
	code := make(chan int, 1)
	go func() {
		answered, _ := w.post(t, w.client(2), "/review", "{}")
		code <- answered
	}()
	await.Receive(t, "the review begins", began)
	w.stop()
	await.Until(t, "the server listens no longer", func() bool {
		conn, err := net.Dial("tcp", w.server.Address())
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	close(release)
	if got := await.Receive(t, "the response", code); got != http.StatusOK {
		t.Errorf("got %d", got)
	}
}
