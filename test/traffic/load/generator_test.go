package load

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podops-dev/podops/test/await"
	"github.com/podops-dev/podops/test/traffic/servers"
)

// patience is the timeout of events that take milliseconds on an idle machine.
const patience = 20 * time.Second

// answering starts a server that handles every connection with handle, and returns its
// address.
func answering(t *testing.T, handle func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				handle(conn)
			}()
		}
	}()
	return listener.Addr().String()
}

// answer reads one request and answers with the text.
func answer(text string) func(net.Conn) {
	return func(conn net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
			_, _ = io.WriteString(conn, text)
		}
	}
}

const whole = "HTTP/1.1 200 OK\r\nX-Pod: web-0\r\nX-Server: s0\r\nContent-Length: 17\r\n\r\nhello from web-0\n"

func TestARequestSucceedsOnlyWithTheWholeAnswerOfAPod(t *testing.T) {
	silent := make(chan struct{})
	t.Cleanup(func() { close(silent) })
	for name, tc := range map[string]struct {
		handle    func(net.Conn)
		want      error // nil: success
		wantCause string
	}{
		"the whole answer":     {handle: answer(whole)},
		"cut off in its body":  {handle: answer(whole[:len(whole)-5]), want: ErrTruncated, wantCause: "answer cut off"},
		"cut off in its head":  {handle: answer(whole[:17]), want: ErrClosed, wantCause: "connection closed before the answer"},
		"closed at once":       {handle: answer(""), want: ErrClosed, wantCause: "connection closed before the answer"},
		"reset":                {handle: func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) }, want: ErrReset, wantCause: "connection reset"},
		"no answer":            {handle: func(net.Conn) { <-silent }, want: ErrTimeout, wantCause: "timed out"},
		"no end of the answer": {handle: func(c net.Conn) { answer(whole[:len(whole)-5])(c); <-silent }, want: ErrTimeout, wantCause: "timed out"},
		"no server": {
			handle: answer("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"), want: ErrStatus, wantCause: "status 503",
		},
		"another pod's body":        {handle: answer(strings.Replace(whole, "X-Pod: web-0", "X-Pod: web-1", 1)), want: ErrBody, wantCause: "body of no pod"},
		"the load balancer answers": {handle: answer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), want: ErrBody, wantCause: "body of no pod"},
		"not HTTP":                  {handle: answer("hello\r\n\r\n"), want: nil, wantCause: "other"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, kind := range []Kind{KeepAlive, OneShot} {
				timeout := patience
				if errors.Is(tc.want, ErrTimeout) {
					timeout = 300 * time.Millisecond
				}
				c := &connection{kind: kind, address: answering(t, tc.handle), timeout: timeout}
				o := Outcome{Kind: kind}
				c.send("/", &o)
				c.close()
				if (o.Err == nil) != (tc.wantCause == "") || tc.want != nil && !errors.Is(o.Err, tc.want) {
					t.Errorf("%s: got %v, want %v", kind, o.Err, tc.want)
				}
				if o.Err != nil && o.cause() != tc.wantCause {
					t.Errorf("%s: counts as %q, want %q", kind, o.cause(), tc.wantCause)
				}
			}
		})
	}
}

func TestARefusedConnectionIsAFailure(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
	o := Outcome{}
	(&connection{kind: OneShot, address: listener.Addr().String(), timeout: patience}).send("/", &o)
	if !errors.Is(o.Err, ErrRefused) || o.cause() != "connection refused" {
		t.Errorf("got %v, counted as %q", o.Err, o.cause())
	}
}

func TestTheOutcomeNamesThePod(t *testing.T) {
	o := Outcome{}
	(&connection{kind: OneShot, address: answering(t, answer(whole)), timeout: patience}).send("/", &o)
	if diff := cmp.Diff(Outcome{Status: 200, Pod: "web-0", Server: "s0"}, o); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
}

// TestNothingIsRepeated checks that a request whose kept connection broke fails, and is not
// sent again.
func TestNothingIsRepeated(t *testing.T) {
	var requests atomic.Int32
	c := &connection{kind: KeepAlive, timeout: patience, address: answering(t, func(conn net.Conn) {
		reader := bufio.NewReader(conn)
		for n := range 2 {
			if _, err := http.ReadRequest(reader); err != nil {
				return
			}
			requests.Add(1)
			if n == 0 {
				_, _ = io.WriteString(conn, whole)
			}
		}
	})}
	defer c.close()
	var first, second, third Outcome
	c.send("/", &first)
	c.send("/", &second)
	c.send("/", &third)
	if first.Err != nil || second.Err == nil || third.Err != nil {
		t.Errorf("got %v, %v, %v; want the second alone to fail", first.Err, second.Err, third.Err)
	}
	if got := requests.Load(); got != 3 {
		t.Errorf("%d requests were sent for 3", got)
	}
}

// backend answers as a pod does, and counts its requests.
type backend struct {
	mu          sync.Mutex
	requests    int
	connections int
	paths       map[string]int
}

func (b *backend) start(t *testing.T) string {
	t.Helper()
	b.paths = map[string]int{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		b.requests++
		b.paths[r.URL.Path]++
		b.mu.Unlock()
		w.Header().Set(servers.PodHeader, "web-0")
		_, _ = io.WriteString(w, servers.Body("web-0"))
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			b.mu.Lock()
			b.connections++
			b.mu.Unlock()
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func TestLoadCountsEveryRequestAndKeepsItsConnections(t *testing.T) {
	var b backend
	var recorded atomic.Int64
	l, err := Start(Options{
		Address: b.start(t), Workers: 3, Paths: []string{"/a", "/b"}, Record: func(Outcome) { recorded.Add(1) },
	})
	if err != nil {
		t.Fatal(err)
	}
	await.Until(t, "200 requests", func() bool { return l.Report().Requests >= 200 })
	report := l.Stop()
	if !report.OK() || report.Requests != b.requests || int(recorded.Load()) != b.requests {
		t.Errorf("%d requests, %d failed, %d recorded; the server has seen %d", report.Requests, report.Failed, recorded.Load(), b.requests)
	}
	if sum := report.Kinds[KeepAlive].Requests + report.Kinds[OneShot].Requests; sum != report.Requests {
		t.Errorf("the kinds have %d requests of %d", sum, report.Requests)
	}
	if want := report.Kinds[OneShot].Requests + 3; b.connections != want {
		t.Errorf("%d connections, want one for each request of one, and 3: %d", b.connections, want)
	}
	if report.Pods["web-0"] != report.Requests || int(report.Latency.Count()) != report.Requests {
		t.Errorf("pods %v, %d latencies, want %d of each", report.Pods, report.Latency.Count(), report.Requests)
	}
	if b.paths["/a"] == 0 || b.paths["/b"] == 0 {
		t.Errorf("requested paths: %v", b.paths)
	}
	if again := l.Stop(); again.Requests != report.Requests || again.Took != report.Took {
		t.Errorf("stopped again: %d in %s, before %d in %s", again.Requests, again.Took, report.Requests, report.Took)
	}
}

// TestStopLetsRequestsEnd checks that open requests are no failures when a load stops.
func TestStopLetsRequestsEnd(t *testing.T) {
	received, goOn := make(chan struct{}, 2), make(chan struct{})
	address := answering(t, func(conn net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
			return
		}
		received <- struct{}{}
		<-goOn
		_, _ = io.WriteString(conn, whole)
	})
	l, err := Start(Options{Address: address, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		await.Receive(t, "a request of each kind", received)
	}
	stopped := make(chan *Report, 1)
	go func() { stopped <- l.Stop() }()
	await.Receive(t, "no request begins", l.stop)
	close(goOn)
	if report := await.Receive(t, "the report", stopped); report.Requests != 2 || report.Failed != 0 {
		t.Errorf("%d requests, %d failed; want 2 and none", report.Requests, report.Failed)
	}
}

func TestScheduleKeepsTheRate(t *testing.T) {
	began := time.Now().Add(-time.Minute) // all of it is overdue, so nothing waits
	var due []time.Duration
	for n := range 4 {
		s := newSchedule(began, 100, 4, n)
		for range 3 {
			at, ok := s.wait(nil)
			if !ok {
				t.Fatal("stopped")
			}
			due = append(due, at.Sub(began)/time.Millisecond)
		}
	}
	if diff := cmp.Diff([]time.Duration{0, 40, 80, 10, 50, 90, 20, 60, 100, 30, 70, 110}, due); diff != "" {
		t.Errorf("milliseconds at which requests are due (-want +got):\n%s", diff)
	}
}

// TestLatencyRunsFromWhenARequestIsDue checks that a server that stalls once adds to the
// latency of the requests behind it.
func TestLatencyRunsFromWhenARequestIsDue(t *testing.T) {
	const stall = 300 * time.Millisecond
	var stalled atomic.Bool
	address := answering(t, func(conn net.Conn) {
		if !stalled.Swap(true) {
			time.Sleep(stall)
		}
		answer(whole)(conn)
	})
	l, err := Start(Options{Address: address, Workers: 1, Rate: 100})
	if err != nil {
		t.Fatal(err)
	}
	await.Until(t, "60 requests", func() bool { return l.Report().Requests >= 60 })
	report := l.Stop()
	late := 0
	for _, kind := range []Kind{KeepAlive, OneShot} {
		totals := report.Kinds[kind]
		if totals.Latency.Max() < stall {
			continue
		}
		// 10 ms apart: some 30 requests were due during the stall.
		for p := 1.0; p <= 100; p++ {
			if totals.Latency.Percentile(p) > stall/3 {
				late++
			}
		}
	}
	if late < 10 {
		t.Errorf("%d of 100 requests are late, want those behind the stall too", late)
	}
}

func TestInvalidOptions(t *testing.T) {
	good := Options{Address: "127.0.0.1:80", Workers: 1}
	for name, tc := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"an address of another host": {func(o *Options) { o.Address = "192.0.2.1:80" }, "127.0.0.0/8 only"},
		"a name":                     {func(o *Options) { o.Address = "localhost:80" }, `"<ip>:<port>"`},
		"no address":                 {func(o *Options) { o.Address = "" }, `"<ip>:<port>"`},
		"no workers":                 {func(o *Options) { o.Workers = 0 }, "1 to 1000"},
		"too many workers":           {func(o *Options) { o.Workers = 1001 }, "1 to 1000"},
		"a negative rate":            {func(o *Options) { o.Rate = -1 }, "1 to 100000"},
		"a rate that is too low":     {func(o *Options) { o.Rate = 0.001 }, "1 to 100000"},
		"a negative timeout":         {func(o *Options) { o.Timeout = -1 }, "positive"},
		"a path without a slash":     {func(o *Options) { o.Paths = []string{"a"} }, `starts with "/"`},
		"a path with a header":       {func(o *Options) { o.Paths = []string{"/ HTTP/1.1\r\nX: y"} }, "no blanks"},
	} {
		t.Run(name, func(t *testing.T) {
			options := good
			tc.change(&options)
			if _, err := Start(options); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
}

func TestLogHasALineForEachOutcome(t *testing.T) {
	var out bytes.Buffer
	log := NewLog(&out)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	log.Record(Outcome{Kind: OneShot, At: at, Latency: 1500 * time.Microsecond, Path: "/", Status: 200, Pod: "web-0", Server: "s0"})
	log.Record(Outcome{Kind: KeepAlive, At: at, Latency: time.Second, Path: "/a", Err: fmt.Errorf("%w:\nreally", ErrReset)})
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	want := "2026-01-02T03:04:05Z\tconnection-per-request\t/\t200\t1500\tweb-0\ts0\t-\n" +
		"2026-01-02T03:04:05Z\tkeep-alive\t/a\t0\t1000000\t-\t-\t\"connection reset:\\nreally\"\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestTheLogReturnsWriteErrors(t *testing.T) {
	log := NewLog(broken{})
	log.Record(Outcome{})
	if err := log.Close(); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("got %v, want the error of writing", err)
	}
}
