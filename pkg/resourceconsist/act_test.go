package resourceconsist

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
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
		provider: newProvider(oneTry()), employer: web(), attempts: map[attempt]bool{},
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
	if calls != maxStrikes || len(out.untried) != 1000-maxStrikes*batchSize || len(out.succeeded) != 0 {
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

// oneTry returns settings under which every call is made once.
func oneTry() settings {
	return settings{qps: 1e6, burst: 1e6, timeout: time.Second, tries: 1, clock: clock.RealClock{}}
}
