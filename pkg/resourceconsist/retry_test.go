package resourceconsist

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/pkg/resourceconsist/plan"
	"github.com/podops-dev/podops/test/builders"
)

var errFlaky = errors.New("the connection was closed")

// fourTries returns the settings of a controller that repeats calls.
func fourTries() settings {
	s := oneTry()
	s.tries = 4
	return s
}

// TestAReconcileSucceedsWhenAFifthOfTheCallsFail relies on probabilities: a call for an
// item fails with 0.2, and all four tries of an item with 0.0016.
func TestAReconcileSucceedsWhenAFifthOfTheCallsFail(t *testing.T) {
	now := builders.Epoch
	a := newActor(&now)
	a.provider = newProvider(fourTries())
	random := rand.New(rand.NewPCG(1, 1))
	var mu sync.Mutex
	out := run(t.Context(), a, verb[string]{name: "Create", id: itself, items: numbered(200), call: func(_ context.Context, _ client.Object, ids []string) (succeeded, failed []string, err error) {
		mu.Lock()
		defer mu.Unlock()
		for _, id := range ids {
			if random.Float64() < 0.2 {
				failed, err = append(failed, id), errFlaky
				continue
			}
			succeeded = append(succeeded, id)
		}
		return succeeded, failed, err
	}})
	if len(out.succeeded) < 198 || len(out.succeeded)+len(out.failed) != 200 || len(out.untried) != 0 {
		t.Errorf("%d items succeeded, %d failed, %d were not tried, want at least 198 of 200 to succeed",
			len(out.succeeded), len(out.failed), len(out.untried))
	}
	if got := len(a.history.failures); got != len(out.failed) {
		t.Errorf("%d failures in the history, want %d: an item that succeeded has none", got, len(out.failed))
	}
}

// TestTheTriesOfAReconcileCountAsOneFailure checks that the pause until the next reconcile
// does not grow with the tries within one.
func TestTheTriesOfAReconcileCountAsOneFailure(t *testing.T) {
	now := builders.Epoch
	a := newActor(&now)
	a.provider = newProvider(fourTries())
	calls := 0
	one := verb[string]{name: "Create", id: itself, items: numbered(1), call: func(context.Context, client.Object, []string) ([]string, []string, error) {
		calls++
		return nil, nil, errFlaky
	}}
	for reconciles := 1; reconciles <= 2; reconciles++ {
		run(t.Context(), a, one)
		failure := a.history.failures[attempt{"Create", "0000"}]
		if failure.times != reconciles || calls != 4*reconciles {
			t.Errorf("after %d reconciles: %d calls, and %d failures count, want %d and %d", reconciles, calls, failure.times, 4*reconciles, reconciles)
		}
		now = now.Add(lastRetry)
	}
}

func TestOnlyRepeatableErrorsAreRetried(t *testing.T) {
	for sentence, tc := range map[string]struct {
		err  error
		want int
	}{
		"a failed connection":                       {err: errFlaky, want: 4},
		"a call without answer":                     {err: context.DeadlineExceeded, want: 1},
		"a provider that is not called for a while": {err: ErrBackingOff, want: 1},
		"a call that still hangs":                   {err: ErrHanging, want: 1},
		"a panic of the adapter":                    {err: errPanic, want: 1},
	} {
		t.Run(sentence, func(t *testing.T) {
			calls := 0
			_, err := retryRead(t.Context(), newProvider(fourTries()), func() (int, error) {
				calls++
				return 0, tc.err
			})
			if calls != tc.want || !errors.Is(err, tc.err) {
				t.Errorf("%d calls, error %v, want %d and the error of the last", calls, err, tc.want)
			}
		})
	}
}

// TestNoTryAfterTheEndOfTheContext checks that a call is made at least once, and that its
// error is the provider's.
func TestNoTryAfterTheEndOfTheContext(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	calls := 0
	_, err := retryRead(ctx, newProvider(fourTries()), func() (int, error) {
		calls++
		end()
		return 0, errFlaky
	})
	if calls != 1 || !errors.Is(err, errFlaky) {
		t.Errorf("%d reads, error %v, want one and its error", calls, err)
	}

	now := builders.Epoch
	a := newActor(&now)
	a.provider = newProvider(fourTries())
	ctx, end = context.WithCancel(t.Context())
	calls = 0
	out := run(ctx, a, verb[string]{name: "Create", id: itself, items: numbered(1), call: func(context.Context, client.Object, []string) ([]string, []string, error) {
		calls++
		end()
		return nil, nil, errFlaky
	}})
	if calls != 1 || len(out.failed) != 1 || !errors.Is(out.failures["0000"].err, errFlaky) {
		t.Errorf("%d calls, %d failed items, errors %v, want one call, whose item failed", calls, len(out.failed), out.failures)
	}
}

// TestAProviderThatIsDownCostsFewCalls checks that tries do not multiply the calls of a
// verb for many items.
func TestAProviderThatIsDownCostsFewCalls(t *testing.T) {
	now, calls := builders.Epoch, 0
	a := newActor(&now)
	a.provider = newProvider(fourTries())
	out := run(t.Context(), a, verb[string]{name: "Create", id: itself, items: numbered(1000), call: func(context.Context, client.Object, []string) ([]string, []string, error) {
		calls++
		return nil, nil, errFlaky
	}})
	if calls > breakAfter {
		t.Errorf("%d calls of a provider that is down, want at most %d", calls, breakAfter)
	}
	if got := len(out.failed) + len(out.untried); got != 1000 {
		t.Errorf("%d items are failed or untried, want all", got)
	}
}

// TestAFailedReadConfirmsUnchangedPods checks that a pod that was on stays confirmed when
// the provider does not answer after another pod was added, and that the added pod does not
// count as off.
func TestAFailedReadConfirmsUnchangedPods(t *testing.T) {
	on := func(name string) plan.Item[IEmployee] {
		return employeeItem(server{id: name, name: name, on: true})
	}
	w := newCluster(t, nil)
	w.lb.fail["GetCurrentEmployee"] = errFlaky
	s := &session{
		key: webKey(), employer: web(), actor: &actor{acted: true}, history: w.r.histories.history(webKey()),
		expectedEmployees: &[]plan.Item[IEmployee]{on("new"), on("old")}, currentEmployees: &[]plan.Item[IEmployee]{on("old")},
	}
	w.r.confirm(t.Context(), s)
	if got := s.traffic.Of("old"); got != plan.On {
		t.Errorf("the pod that was on is %v, want on", got)
	}
	if got := s.traffic.Of("new"); got != plan.Unconfirmed {
		t.Errorf("the pod that was added is %v, want unconfirmed", got)
	}
}
