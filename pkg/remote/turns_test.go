package remote

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAHostThatHasJustFailedGetsOneCallAtATime(t *testing.T) {
	turns := newTurns(PoolOptions{}.withDefaults())
	for i := range 10 {
		turns.add(callOf(fmt.Sprint(i), "shop", "h"))
	}
	takeAll := func() (taken []*job) {
		for {
			next, failure := turns.take(noon, false)
			if next == nil {
				return taken
			}
			if failure != nil {
				t.Fatal(failure)
			}
			taken = append(taken, next)
		}
	}
	running := takeAll()
	if len(running) != 4 {
		t.Fatalf("%d calls run at once, want 4", len(running))
	}
	for _, ended := range running {
		turns.end(ended, fail(ClassTimeout, "no answer"), noon)
	}
	if running = takeAll(); len(running) != 1 {
		t.Fatalf("%d calls run at once after a failure, want 1", len(running))
	}
	turns.end(running[0], nil, noon)
	if running = takeAll(); len(running) != 4 {
		t.Errorf("%d calls run at once after an answer, want 4", len(running))
	}
}

func TestNamespacesTakeTurns(t *testing.T) {
	turns := newTurns(PoolOptions{PerHost: 1}.withDefaults())
	for i := range 3 {
		turns.add(callOf(fmt.Sprint("a", i), "loud", "h"))
	}
	turns.add(callOf("b", "quiet", "h"))
	var order []string
	for range 4 {
		next, _ := turns.take(noon, false)
		order = append(order, next.call.Key)
		turns.end(next, nil, noon)
	}
	if diff := cmp.Diff([]string{"a0", "b", "a1", "a2"}, order); diff != "" {
		t.Errorf("order differs (-want +got):\n%s", diff)
	}
	if len(turns.hosts) != 0 || len(turns.queues) != 0 || len(turns.namespaces) != 0 || turns.queued != 0 || turns.running != 0 {
		t.Errorf("something is left: %+v", turns)
	}
}

func TestHostsThatOnlyFailAreBounded(t *testing.T) {
	b := start(t, double{post: func(context.Context, Endpoint, PostRequest) (PostAnswer, error) {
		return PostAnswer{}, fail(ClassDNS, "no such host")
	}}, PoolOptions{})
	for i := range maxHosts + 100 {
		b.submit(t, callOf(fmt.Sprint(i), "shop", fmt.Sprintf("h%d", i)))
		b.next(t)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if known := len(b.turns.hosts); known > maxHosts {
		t.Errorf("%d hosts are remembered, want at most %d", known, maxHosts)
	}
}
