package webhookclient

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/test/await"
)

// fleet is many rules that call a few services, over real HTTP.
type fleet struct {
	// urls are the URLs of the services; rule i calls the one with index i modulo their number.
	urls  []string
	rules int

	// healthy reports whether the results of a service count.
	healthy func(service int) bool

	// rounds is the number of calls of each healthy rule, one after the other, with a pause in
	// between.
	rounds int
	pause  time.Duration
}

// observed are the measurements of a run.
type observed struct {
	p50, p99   time.Duration
	goroutines int
	failures   int
}

// run makes the calls of all rules, and waits for the healthy ones. Latency is the time from Submit
// to the result: the time that a pod waits.
func (f fleet) run(t *testing.T) observed {
	t.Helper()
	metrics, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Error(err)
		return observed{}
	}
	results := make(chan Result, 10_000)
	client := NewClient(local(), Timeouts{Header: 3 * time.Second, Try: 3 * time.Second})
	pool := NewPool(client, PoolOptions{}, metrics, func(result Result) { results <- result })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- pool.Start(ctx) }()
	defer func() {
		cancel()
		if err := await.Receive(t, "the pool ends", ended); err != nil {
			t.Error(err)
		}
	}()

	begun := map[string]time.Time{}
	left := map[int]int{}
	var took []time.Duration
	seen := observed{}
	submit := func(rule_ int) {
		key := fmt.Sprint(rule_, "/", left[rule_])
		begun[key] = time.Now()
		if !pool.Submit(Call{Key: key, Rule: rule.RuleID{Ruleset: types.NamespacedName{Namespace: "shop", Name: fmt.Sprint(rule_)}, Rule: "approval"},
			Post: &PostCall{Endpoint: Endpoint{URL: f.urls[rule_%len(f.urls)]}, Request: PostRequest{TraceID: key}}}) {
			t.Errorf("call %s was not taken", key)
		}
	}
	type turn struct {
		at   time.Time
		rule int
	}
	var turns []turn // in order of time, since all pauses are equal; goroutines of timers would count as seen
	waiting, start := 0, time.Now()
	for rule := range f.rules {
		left[rule] = f.rounds
		if f.healthy(rule % len(f.urls)) {
			waiting++
		}
		// The rules start at different times, as pods do.
		turns = append(turns, turn{start.Add(f.pause * time.Duration(rule) / time.Duration(f.rules)), rule})
	}
	giveUp := time.After(3 * time.Minute)
	for waiting > 0 {
		var due <-chan time.Time
		if len(turns) > 0 {
			due = time.After(time.Until(turns[0].at))
		}
		select {
		case <-due:
			submit(turns[0].rule)
			turns = turns[1:]
		case result := <-results:
			var rule, round int
			if _, err := fmt.Sscanf(result.Call.Key, "%d/%d", &rule, &round); err != nil {
				t.Errorf("reading the key of a call: %v", err)
			}
			if f.healthy(rule % len(f.urls)) {
				took = append(took, time.Since(begun[result.Call.Key]))
				if result.Failure != nil {
					seen.failures++
				}
				if left[rule]--; left[rule] == 0 {
					waiting--
					continue
				}
			} else {
				// Rules of dead services call again and again.
				left[rule]++
			}
			delete(begun, result.Call.Key)
			seen.goroutines = max(seen.goroutines, runtime.NumGoroutine())
			turns = append(turns, turn{time.Now().Add(f.pause), rule})
		case <-giveUp:
			t.Error("the healthy rules do not end")
			return seen
		}
	}
	slices.Sort(took)
	seen.p50, seen.p99 = took[len(took)/2], took[len(took)*99/100]
	return seen
}

func TestDeadHostsDoNotSlowDownTheOthers(t *testing.T) {
	var healthy, all []string
	for range 3 {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(2 * time.Millisecond) // The latency of the service.
			_, _ = io.WriteString(w, `{"success":true}`)
		})
		healthy = append(healthy, s.URL)
	}
	all = slices.Clone(healthy)
	for range 2 {
		all = append(all, byHand(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) }))
	}
	without := fleet{urls: healthy, rules: 300, healthy: func(int) bool { return true }, rounds: 4, pause: time.Second}
	with := fleet{urls: all, rules: 500, healthy: func(service int) bool { return service < 3 }, rounds: 4, pause: time.Second}

	goroutines, heap := runtime.NumGoroutine(), allocated()
	// Both run at once, so that they share the load of the machine. One good run of three is
	// enough, because the load varies. Calls that queue behind a hanging host take seconds in all
	// of them.
	var calm, dead observed
	for range 3 {
		var beside sync.WaitGroup
		beside.Go(func() { calm = without.run(t) })
		dead = with.run(t)
		beside.Wait()
		t.Logf("without dead hosts p50 %v p99 %v, with them p50 %v p99 %v; goroutines %d before, at most %d",
			calm.p50, calm.p99, dead.p50, dead.p99, goroutines, max(calm.goroutines, dead.goroutines))
		if calm.failures > 0 || dead.failures > 0 {
			t.Fatalf("%d and %d calls of healthy services failed", calm.failures, dead.failures)
		}
		// Two pools of workers, and for every running call both ends of its connection, some of
		// which are still closing.
		if most, limit := max(calm.goroutines, dead.goroutines), goroutines+2*(33+8*32); most > limit {
			t.Errorf("%d goroutines, want at most %d", most, limit)
		}
		if grown := allocated() - heap; grown > 8<<20 {
			t.Errorf("the heap grew by %d bytes", grown)
		}
		if dead.p99 <= 2*calm.p99 {
			return
		}
	}
	t.Errorf("p99 %v beside dead hosts, want at most twice the %v without them", dead.p99, calm.p99)
}
