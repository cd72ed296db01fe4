package webhookclient

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/webhookrule/webhooktask"
	"github.com/podops-dev/podops/test/await"
)

func TestResultsAreDelivered(t *testing.T) {
	b := start(t, double{post: approve}, PoolOptions{})
	posted := callOf("a", "shop", "h")
	polled := Call{Key: "b", Rule: posted.Rule, Poll: &PollCall{Endpoint: posted.Post.Endpoint, Keys: []string{"task-id"}, TaskID: "7"}}
	b.submit(t, posted)
	if got := b.next(t); got.Call.Key != "a" || got.Post == nil || !got.Post.Success || got.Poll != nil || got.Failure != nil {
		t.Errorf("result %+v", got)
	}
	b.submit(t, polled)
	if got := b.next(t); got.Call.Key != "b" || got.Poll == nil || !got.Poll.Success || got.Post != nil || got.Failure != nil {
		t.Errorf("result %+v", got)
	}
	await.Until(t, "nothing in flight", func() bool { return !b.InFlight("a") && !b.InFlight("b") })
}

func TestACallIsInFlightUntilItsResultIsDelivered(t *testing.T) {
	metrics, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	var pool *Pool
	during := make(chan bool, 1)
	pool = NewPool(double{post: approve}, PoolOptions{}, metrics, func(result Result) { during <- pool.InFlight(result.Call.Key) })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = pool.Start(ctx) }()
	pool.Submit(callOf("a", "shop", "h"))
	if !await.Receive(t, "the result", during) {
		t.Error("while its result is delivered, the call is neither in flight nor known to have ended")
	}
	await.Until(t, "no longer in flight", func() bool { return !pool.InFlight("a") })
}

func TestTheNextCallOfAKeyMayFollowFromTheResult(t *testing.T) {
	metrics, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	var pool *Pool
	taken := make(chan bool, 2)
	first := true
	pool = NewPool(double{post: approve}, PoolOptions{Workers: 1}, metrics, func(result Result) {
		if first {
			first = false
			taken <- pool.Submit(result.Call)
			return
		}
		taken <- true
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = pool.Start(ctx) }()
	pool.Submit(callOf("a", "shop", "h"))
	if !await.Receive(t, "the result", taken) {
		t.Fatal("the next call was not taken")
	}
	await.Receive(t, "the result of the next call", taken)
	await.Until(t, "no longer in flight", func() bool { return !pool.InFlight("a") })
}

func TestNoCallIsMadeTwiceAtOnce(t *testing.T) {
	b := start(t, double{post: hang}, PoolOptions{})
	b.submit(t, callOf("a", "shop", "h"))
	if b.Submit(callOf("a", "shop", "h")) {
		t.Error("a call of the same key was taken")
	}
}

func TestTheQueueIsBounded(t *testing.T) {
	b := start(t, double{post: hang}, PoolOptions{Workers: 1, QueuePerNamespace: 2})
	b.submit(t, callOf("runs", "shop", "h"))
	await.Until(t, "it runs", func() bool { return b.value(t, "podops_webhook_calls_running") == 1 })
	b.submit(t, callOf("a", "shop", "h"), callOf("b", "shop", "h"))
	if b.Submit(callOf("c", "shop", "h")) {
		t.Error("a call beyond the queue was taken")
	}
	if b.InFlight("c") {
		t.Error("a call that was not taken is in flight")
	}
	wantClass(t, Busy(), ClassBusy)
}

func TestCallsToAHostAreBoundedInANamespace(t *testing.T) {
	var running, most atomic.Int32
	release := make(chan struct{})
	b := start(t, double{post: func(context.Context, Endpoint, PostRequest) (webhooktask.PostAnswer, error) {
		if now := running.Add(1); now > most.Load() {
			most.Store(now)
		}
		defer running.Add(-1)
		<-release
		return webhooktask.PostAnswer{}, nil
	}}, PoolOptions{})
	for i := range 50 {
		b.submit(t, callOf(fmt.Sprint(i), fmt.Sprint("ns", i%2), "h"))
	}
	await.Until(t, "their shares run", func() bool { return running.Load() == 2*4 })
	close(release)
	for range 50 {
		b.next(t)
	}
	if most.Load() != 2*4 {
		t.Errorf("%d calls ran at once, want 8", most.Load())
	}
}

func TestANamespaceCannotTakeAllWorkers(t *testing.T) {
	b := start(t, double{post: func(ctx context.Context, endpoint Endpoint, request PostRequest) (webhooktask.PostAnswer, error) {
		if endpoint.URL == "http://good/" {
			return approve(ctx, endpoint, request)
		}
		return hang(ctx, endpoint, request)
	}}, PoolOptions{})
	for i := range 200 {
		b.submit(t, callOf(fmt.Sprint(i), "hostile", fmt.Sprintf("hang-%d", i)))
	}
	await.Until(t, "its share runs", func() bool { return b.value(t, "podops_webhook_calls_running") == 16 })
	b.submit(t, callOf("good", "shop", "good"))
	if got := b.next(t); got.Call.Key != "good" {
		t.Errorf("result %+v", got)
	}
}

func TestAnOpenBreakerFailsQueuedCallsAtOnce(t *testing.T) {
	var calls atomic.Int32
	b := start(t, double{post: func(context.Context, Endpoint, PostRequest) (webhooktask.PostAnswer, error) {
		calls.Add(1)
		return webhooktask.PostAnswer{}, fail(ClassRefused, "refused")
	}}, PoolOptions{})
	for i := range 100 {
		b.submit(t, callOf(fmt.Sprint(i), "shop", "dead"))
	}
	classes := map[Class]int{}
	for range 100 {
		got := b.next(t)
		classes[got.Failure.Class]++
		if got.Failure.Class == ClassBreakerOpen && (got.Failure.Sent || got.Failure.RetryAfter <= 0 || got.Failure.RetryAfter > 10*time.Second) {
			t.Fatalf("failure %+v", got.Failure)
		}
	}
	// Up to four run at once until the first has failed.
	if made := int(calls.Load()); made < 5 || made > 8 || classes[ClassRefused] != made || classes[ClassBreakerOpen] != 100-made {
		t.Errorf("%d calls, results %v", made, classes)
	}
	await.Until(t, "the breaker is shown", func() bool {
		return b.value(t, "podops_webhook_breaker_open", "namespace", "shop", "host", "dead:80") == 1
	})
	labels := []string{"host", "dead:80", "outcome", string(ClassBreakerOpen)}
	before := b.value(t, "podops_webhook_calls_total", labels...)
	next := callOf("next", "shop", "dead")
	rejection := b.CircuitOpen(next)
	if rejection == nil || rejection.Class != ClassBreakerOpen || rejection.RetryAfter <= 0 {
		t.Fatalf("the circuit breaker is not open: %+v", rejection)
	}
	b.CountSkipped(next, rejection)
	if after := b.value(t, "podops_webhook_calls_total", labels...); after != before+1 {
		t.Errorf("%v calls are counted after %v, want one more", after, before)
	}
}

// TestABreakerIsOfOneNamespaceSchemeHostAndTrust checks that five failed calls open the breaker of
// their own target only.
func TestABreakerIsOfOneNamespaceSchemeHostAndTrust(t *testing.T) {
	p, broken := breakerOpenAt(t, "http://approvals.example:443/")
	if got := p.CircuitOpen(broken); got == nil {
		t.Error("the circuit breaker of the broken calls is closed")
	}
	for name, change := range map[string]func(*Call){
		"another namespace": func(c *Call) { c.Rule.Ruleset.Namespace = "bank" },
		"another scheme":    func(c *Call) { c.Post.Endpoint.URL = "https://approvals.example/" },
		"another host":      func(c *Call) { c.Post.Endpoint.URL = "http://desk.example:443/" },
		"another port":      func(c *Call) { c.Post.Endpoint.URL = "http://approvals.example/" },
		"another caBundle":  func(c *Call) { c.Post.Endpoint.CABundle = "Cg==" },
	} {
		t.Run(name, func(t *testing.T) {
			call := callOf("a", "shop", "x")
			call.Post.Endpoint.URL = broken.Post.Endpoint.URL
			change(&call)
			if got := p.CircuitOpen(call); got != nil {
				t.Errorf("its calls are not made: %v", got)
			}
		})
	}
}

// breakerOpenAt returns a pool that does not run, with a fixed clock, and a call to a target whose
// circuit breaker has just opened.
func breakerOpenAt(t *testing.T, url string) (*Pool, Call) {
	t.Helper()
	metrics, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	p := NewPool(nil, PoolOptions{}, metrics, nil)
	p.now = func() time.Time { return noon }
	call := callOf("a", "shop", "x")
	call.Post.Endpoint.URL = url
	at := p.queue.target(call.target())
	for range 5 {
		at.breaker.ended(healthFailed, false, noon)
	}
	return p, call
}

// TestTheProbeIsReservedForOneCaller has many callers that wait for the end of the pause. Each of
// them would record a call in status that is then rejected.
func TestTheProbeIsReservedForOneCaller(t *testing.T) {
	p, call := breakerOpenAt(t, "http://dead.example/")
	now := noon
	p.now = func() time.Time { return now }
	admitted := func() (probes int) {
		for range 10 {
			probe, rejection := p.Admit(call)
			if probe {
				probes++
			} else if rejection == nil || rejection.Class != ClassBreakerOpen || rejection.RetryAfter <= 0 {
				t.Errorf("rejected with %+v", rejection)
			}
		}
		return probes
	}
	for _, step := range []struct {
		name  string
		after time.Duration
		want  int
	}{
		{"during the pause", 0, 0},
		{"after it", 10 * time.Second, 1},
		{"before that one has submitted", probeReserved - 1, 0},
		{"when it has not, for as long as it may take", 1, 1},
	} {
		now = now.Add(step.after)
		if got := admitted(); got != step.want {
			t.Errorf("%s %d of 10 are admitted, want %d", step.name, got, step.want)
		}
	}
}

// TestCircuitOpenReservesNothing checks the circuit breaker for rules that have no call to make.
func TestCircuitOpenReservesNothing(t *testing.T) {
	p, call := breakerOpenAt(t, "http://dead.example/")
	p.now = func() time.Time { return noon.Add(10 * time.Second) }
	for range 10 {
		if rejection := p.CircuitOpen(call); rejection != nil {
			t.Fatalf("half-open, it rejects with %v", rejection)
		}
	}
	if probe, rejection := p.Admit(call); !probe || rejection != nil {
		t.Fatalf("no probe is left: %v", rejection)
	}
	if rejection := p.CircuitOpen(call); rejection == nil {
		t.Error("the probe is reserved, and the circuit breaker shows nothing of it")
	}
}

func TestBreakersAffectTheirHostOnly(t *testing.T) {
	for url, want := range map[string]string{
		"http://H.example/a":     "h.example:80",
		"https://h.example/?x=1": "h.example:443",
		"https://h.example:80/":  "h.example:80",
		"http://[FD00::1]/":      "[fd00::1]:80",
		"http://h.example:/":     "invalid",
		"http://2130706433/":     "invalid",
	} {
		if got := (Call{Poll: &PollCall{Endpoint: Endpoint{URL: url}}}).target().host; got != want {
			t.Errorf("%s: %s, want %s", url, got, want)
		}
	}
}

func TestPanicsAreFailures(t *testing.T) {
	b := start(t, double{post: func(_ context.Context, endpoint Endpoint, _ PostRequest) (webhooktask.PostAnswer, error) {
		if endpoint.URL == "http://bad/" {
			panic("oops")
		}
		return webhooktask.PostAnswer{Success: true}, nil
	}}, PoolOptions{Workers: 1})
	b.submit(t, callOf("a", "shop", "bad"), Call{Key: "neither"}, callOf("b", "shop", "good"))
	classes := map[string]Class{}
	for range 3 {
		got := b.next(t)
		classes[got.Call.Key] = ""
		if got.Failure != nil {
			classes[got.Call.Key] = got.Failure.Class
		}
	}
	if diff := cmp.Diff(map[string]Class{"a": ClassInternal, "neither": ClassInternal, "b": ""}, classes); diff != "" {
		t.Errorf("results differ (-want +got):\n%s", diff)
	}
}

func TestAPanicOfTheReceiverEndsNoWorker(t *testing.T) {
	metrics, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	delivered := make(chan string, 2)
	pool := NewPool(double{post: approve}, PoolOptions{Workers: 1}, metrics, func(result Result) {
		delivered <- result.Call.Key
		panic("oops")
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = pool.Start(ctx) }()
	pool.Submit(callOf("a", "shop", "h"))
	pool.Submit(callOf("b", "shop", "h"))
	for range 2 {
		await.Receive(t, "a result", delivered)
	}
	await.Until(t, "nothing in flight", func() bool { return !pool.InFlight("a") && !pool.InFlight("b") })
}

func TestThePoolEndsWithItsContext(t *testing.T) {
	b := start(t, double{post: hang}, PoolOptions{})
	for i := range 100 {
		b.submit(t, callOf(fmt.Sprint(i), "shop", fmt.Sprintf("h%d", i%10)))
	}
	b.stop()
	if b.Submit(callOf("late", "shop", "h")) {
		t.Error("a call was taken after the end")
	}
	if len(b.results) != 0 {
		t.Errorf("%d results of calls that were cut off", len(b.results))
	}
	if b.Start(t.Context()) == nil {
		t.Error("the pool was started twice")
	}
}

func TestForgettingARule(t *testing.T) {
	running := make(chan struct{}, 10)
	b := start(t, double{post: func(ctx context.Context, endpoint Endpoint, request PostRequest) (webhooktask.PostAnswer, error) {
		if endpoint.URL == "http://good/" {
			return approve(ctx, endpoint, request)
		}
		running <- struct{}{}
		return hang(ctx, endpoint, request)
	}}, PoolOptions{})
	b.submit(t, callOf("1", "shop", "good"), callOf("2", "bank", "good"))
	b.next(t)
	b.next(t)
	for i := range 10 {
		b.submit(t, callOf(fmt.Sprint("s", i), "shop", "h"))
	}
	for range 4 {
		await.Receive(t, "a call begins", running)
	}
	b.Forget(rule.RuleID{Ruleset: types.NamespacedName{Namespace: "shop", Name: "web"}})
	await.Until(t, "its calls have ended", func() bool { return b.value(t, "podops_webhook_calls_running") == 0 })
	if b.InFlight("s0") || b.InFlight("s9") || b.value(t, "podops_webhook_calls_queued") != 0 {
		t.Error("calls of the rule are still in flight")
	}
	b.submit(t, callOf("3", "bank", "good"))
	if got := b.next(t); got.Call.Key != "3" {
		t.Errorf("a result of the forgotten rule: %+v", got)
	}
	if b.has(t, "podops_webhook_calls_total", "namespace", "shop") || !b.has(t, "podops_webhook_calls_total", "namespace", "bank") {
		t.Error("series of the forgotten rule are left, or those of another are gone")
	}
	if !b.has(t, "podops_webhook_call_duration_seconds", "namespace", "bank", "host", "good:80") {
		t.Error("the series of a host that another rule calls are gone")
	}
	b.Forget(rule.RuleID{Ruleset: types.NamespacedName{Namespace: "bank", Name: "web"}, Rule: "approval"})
	if b.has(t, "podops_webhook_call_duration_seconds", "namespace", "bank", "host", "good:80") {
		t.Error("the series of a host without calls remain")
	}
}
