package resourceconsist

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/pkg/resourceconsist/plan"
	"github.com/podops-dev/podops/test/builders"
)

func numbered(n int) []plan.Item[string] {
	items := make([]plan.Item[string], n)
	for i := range items {
		id := fmt.Sprintf("%04d", i)
		items[i] = plan.Item[string]{ID: id, Name: id, Value: id}
	}
	return items
}

func newActor(now *time.Time) *actor {
	return &actor{
		provider: newProvider(oneTry()), batch: defaultBatch, employer: web(), attempts: map[attempt]bool{},
		history: &history{failures: map[attempt]failure{}, lastEvents: map[string]string{}}, now: func() time.Time { return *now },
	}
}

func itself(id string) string { return id }

func TestAVerbThatFailsForEveryItemStops(t *testing.T) {
	now, calls := builders.Epoch, 0
	a := newActor(&now)
	out := run(t.Context(), a, verb[string]{name: "Create", id: itself, items: numbered(1000), call: func(context.Context, client.Object, []string) ([]string, []string, error) {
		calls++ // one at a time: a verb without a success never widens its waves
		return nil, nil, errQuota
	}})
	if calls != maxStrikes || len(out.untried) != 1000-maxStrikes*defaultBatch || len(out.succeeded) != 0 {
		t.Errorf("%d calls, %d items untried", calls, len(out.untried))
	}
}

func TestAVerbStartsSlowly(t *testing.T) {
	now := builders.Epoch
	var mu sync.Mutex
	running, widest, first := 0, 0, 0
	out := run(t.Context(), newActor(&now), verb[string]{name: "Create", id: itself, items: numbered(1000), call: func(_ context.Context, _ client.Object, ids []string) ([]string, []string, error) {
		mu.Lock()
		running++
		widest = max(widest, running)
		if ids[0] == "0000" {
			first = running
		}
		mu.Unlock()
		defer func() { mu.Lock(); running--; mu.Unlock() }()
		return ids, nil, nil
	}})
	if len(out.succeeded) != 1000 || first != 1 || widest > maxParallel {
		t.Errorf("%d succeeded, %d calls beside the first, at most %d at once", len(out.succeeded), first, widest)
	}
}

func TestResultsOfItems(t *testing.T) {
	for sentence, tc := range map[string]struct {
		succeeded, failed []string
		err               error
		fails             bool
	}{
		"no list and no error":      {nil, nil, nil, false},
		"succeeded, with an error":  {[]string{"0000"}, nil, errQuota, false},
		"not listed, with an error": {[]string{"else"}, nil, errQuota, true},
		"failed, without an error":  {nil, []string{"0000"}, nil, true},
		"succeeded and failed":      {[]string{"0000"}, []string{"0000"}, errQuota, true},
		"an error of another item":  {nil, []string{"else"}, errQuota, true},
	} {
		t.Run(sentence, func(t *testing.T) {
			now := builders.Epoch
			out := run(t.Context(), newActor(&now), verb[string]{name: "Create", id: itself, items: numbered(1), call: func(context.Context, client.Object, []string) ([]string, []string, error) {
				return tc.succeeded, tc.failed, tc.err
			}})
			if (len(out.failed) == 1) != tc.fails {
				t.Errorf("outcome %+v", out)
			}
		})
	}
}

// TestHealthyItemsSucceedBesideFailingOnes checks that, however many items always fail and however an adapter
// reports it, the other items succeed in a bounded number of rounds, and no item is missing
// from the outcome.
func TestHealthyItemsSucceedBesideFailingOnes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := builders.Epoch
		a := newActor(&now)
		items := numbered(rapid.IntRange(1, 120).Draw(t, "items"))
		broken := map[string]bool{}
		for _, index := range rapid.SliceOfN(rapid.IntRange(0, len(items)-1), 0, 10).Draw(t, "broken") {
			broken[items[index].ID] = true
		}
		whole := rapid.Bool().Draw(t, "whole batches fail")
		done := sync.Map{}
		call := func(_ context.Context, _ client.Object, ids []string) (succeeded, failed []string, err error) {
			for _, id := range ids {
				if broken[id] {
					failed, err = append(failed, id), errors.New("broken")
					continue
				}
				succeeded = append(succeeded, id)
			}
			if whole && err != nil {
				return nil, nil, err
			}
			for _, id := range succeeded {
				done.Store(id, true)
			}
			return succeeded, failed, err
		}
		for range 40 {
			a.provider = newProvider(oneTry())
			var left []plan.Item[string]
			for _, item := range items {
				if _, ok := done.Load(item.ID); !ok {
					left = append(left, item)
				}
			}
			out := run(t.Context(), a, verb[string]{name: "Create", id: itself, items: left, call: call})
			if got := len(out.succeeded) + len(out.failed) + len(out.untried); got != len(left) {
				t.Fatalf("%d of %d items in the outcome", got, len(left))
			}
			now = now.Add(lastRetry)
		}
		for _, item := range items {
			if _, ok := done.Load(item.ID); !ok && !broken[item.ID] {
				t.Fatalf("%s never succeeded", item.ID)
			}
		}
	})
}

// outage is a provider that fails for a time, and then accepts a limited number of calls in a second.
type outage struct {
	mu     sync.Mutex
	down   bool
	limit  int // of calls in a second; 0: none
	second int // calls in this second
	calls  int
	added  map[string]bool

	// throttles makes a rejected call a Throttled one.
	throttles bool
}

func (o *outage) call(_ context.Context, _ client.Object, ids []string) (succeeded, failed []string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.calls++
	o.second++
	switch {
	case o.down:
		return nil, nil, errFlaky
	case o.limit > 0 && o.second > o.limit && o.throttles:
		return nil, nil, Throttled(errQuota, time.Second)
	case o.limit > 0 && o.second > o.limit:
		return nil, nil, errQuota
	}
	for _, id := range ids {
		o.added[id] = true
	}
	return ids, nil, nil
}

// rounds runs the verb until everything is added, a second after the other, and returns how many calls that took.
func (o *outage) rounds(t *testing.T, a *actor, now *time.Time, items int) (calls int) {
	t.Helper()
	before := o.calls
	for range 600 {
		var left []plan.Item[string]
		for _, item := range numbered(items) {
			if !o.added[item.ID] {
				left = append(left, item)
			}
		}
		if len(left) == 0 {
			return o.calls - before
		}
		run(t.Context(), a, verb[string]{name: "Create", id: itself, items: left, call: o.call})
		*now, o.second = now.Add(time.Second), 0
	}
	t.Fatalf("%d of %d items are added", len(o.added), items)
	return 0
}

// TestAnOutageLeavesBatches makes 1,000 pods wait for a provider that fails for a minute.
func TestAnOutageLeavesBatches(t *testing.T) { synctest.Test(t, testAnOutageLeavesBatches) }

func testAnOutageLeavesBatches(t *testing.T) {
	now := builders.Epoch
	a := newActor(&now)
	o := &outage{down: true, added: map[string]bool{}}
	for range 60 {
		a.provider = newProvider(fourTries())
		run(t.Context(), a, verb[string]{name: "Create", id: itself, items: numbered(1000), call: o.call})
		now = now.Add(time.Second)
	}
	o.down, a.provider = false, newProvider(fourTries())
	calls := o.rounds(t, a, &now, 1000)
	t.Logf("%d calls after the outage", calls)
	if calls > 60 {
		t.Error("want about 50 calls")
	}
}

// TestALimitLeavesBatches has a provider that accepts 20 calls a second, each of which adds a batch.
func TestALimitLeavesBatches(t *testing.T) {
	for throttles, most := range map[bool]int{true: 60, false: 300} {
		t.Run(fmt.Sprintf("throttled %t", throttles), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				now := builders.Epoch
				a := newActor(&now)
				o := &outage{limit: 20, throttles: throttles, added: map[string]bool{}}
				a.provider = newProvider(fourTries())
				a.provider.clock = &movingClock{&now}
				calls := o.rounds(t, a, &now, 1000)
				t.Logf("%d calls for 1,000 pods", calls)
				if calls > most {
					t.Errorf("want at most %d calls", most)
				}
			})
		})
	}
}

// movingClock reads a time that a test moves.
type movingClock struct{ now *time.Time }

func (c *movingClock) Now() time.Time                  { return *c.now }
func (c *movingClock) Since(t time.Time) time.Duration { return c.now.Sub(t) }

func TestAThrottledCallHasFailedForNoItem(t *testing.T) {
	now := builders.Epoch
	a := newActor(&now)
	a.provider.clock = &movingClock{&now}
	calls := 0
	throttled := verb[string]{name: "Create", id: itself, items: numbered(40), call: func(_ context.Context, _ client.Object, ids []string) ([]string, []string, error) {
		calls++
		return ids[:5], ids[5:], fmt.Errorf("adding: %w", Throttled(errQuota, 3*time.Second))
	}}
	out := run(t.Context(), a, throttled)
	if calls != 1 || len(out.succeeded) != 5 || len(out.failed) != 0 || len(out.untried) != 35 || len(a.history.failures) != 0 {
		t.Errorf("%d calls: %d succeeded, %d failed, %d untried", calls, len(out.succeeded), len(out.failed), len(out.untried))
	}
	now = now.Add(2 * time.Second)
	if run(t.Context(), a, throttled); calls != 1 {
		t.Error("the provider is called before the time that it has requested")
	}
	now = now.Add(time.Second)
	if run(t.Context(), a, throttled); calls != 2 {
		t.Errorf("%d calls, want one more after the time that it has requested", calls)
	}
}

func TestAnItemThatPanicsIsAnErrorOfItsCall(t *testing.T) {
	now := builders.Epoch
	out := run(t.Context(), newActor(&now), verb[string]{
		name: "Create", items: numbered(1), id: func(string) string { panic("no id") },
		call: func(_ context.Context, _ client.Object, ids []string) ([]string, []string, error) {
			return ids, nil, nil
		},
	})
	if err := out.failures["0000"].err; len(out.failed) != 1 || err == nil || !strings.Contains(err.Error(), "the adapter panics: no id") {
		t.Errorf("%+v", out)
	}
}

// oneTry returns settings under which every call is made once.
func oneTry() settings {
	return settings{qps: 1e6, burst: 1e6, timeout: time.Second, tries: 1, clock: clock.RealClock{}}
}
