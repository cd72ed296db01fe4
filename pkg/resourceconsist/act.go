package resourceconsist

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/pkg/resourceconsist/plan"
)

const (
	// batchSize is the number of items per call.
	batchSize = 20

	// maxParallel is the number of calls for one employer that run at once. The first wave
	// has one call, the next two, four and so on.
	maxParallel = 8

	// maxStrikes is the number of waves in a row without a success after which a verb ends:
	// the cause is then not a single item.
	maxStrikes = 3
)

// do is one verb of an adapter.
type do[T any] func(ctx context.Context, employer client.Object, items []T) ([]T, []T, error)

// outcome holds the items of one verb by their result, each list sorted by id.
type outcome[T any] struct {
	succeeded, failed []plan.Item[T]

	// untried holds the items that were not attempted in this reconcile.
	untried []plan.Item[T]

	// errs holds the errors of the attempted items that failed, by id.
	errs map[string]error
}

// verb is one verb for the items of a plan.
type verb[T any] struct {
	name  string
	call  do[T]
	id    func(T) string
	items []plan.Item[T]
}

// actor makes the calls for one employer. It is used by one worker; run itself calls the
// adapter from several goroutines.
type actor struct {
	provider *provider
	target   target
	employer client.Object
	history  *history
	now      func() time.Time

	// attempts holds every attempt of this reconcile, due or not.
	attempts map[attempt]bool

	// acted is true once a verb of the provider was called.
	acted bool

	// untried counts the items that were not attempted.
	untried int
}

// run calls a verb: first for items that have not failed before, in batches, then for
// failed items that are due, one by one, the item with the fewest failures first.
func run[T any](ctx context.Context, a *actor, v verb[T]) outcome[T] {
	out := outcome[T]{errs: map[string]error{}}
	var fresh, again, resting []plan.Item[T]
	now := a.now()
	for _, item := range v.items {
		key := attempt{v.name, item.ID}
		a.attempts[key] = true
		f, failed := a.history.failures[key]
		switch {
		case !failed:
			fresh = append(fresh, item)
		case f.next.After(now):
			resting = append(resting, item)
		default:
			again = append(again, item)
		}
	}
	slices.SortStableFunc(again, func(x, y plan.Item[T]) int {
		return cmp.Compare(a.history.failures[attempt{v.name, x.ID}].times, a.history.failures[attempt{v.name, y.ID}].times)
	})
	batches := slices.Collect(slices.Chunk(fresh, batchSize))
	batches = append(batches, slices.Collect(slices.Chunk(again, 1))...)
	waves(ctx, a, v, batches, &out)
	retryItems(ctx, a, v, &out)
	for _, item := range out.failed {
		a.history.failed(attempt{v.name, item.ID}, item.Name, out.errs[item.ID], a.now())
	}
	out.failed = append(out.failed, resting...)
	for _, items := range []*[]plan.Item[T]{&out.succeeded, &out.failed, &out.untried} {
		slices.SortFunc(*items, func(x, y plan.Item[T]) int { return cmp.Compare(x.ID, y.ID) })
	}
	a.untried += len(out.untried)
	return out
}

// waves makes the calls in waves, each twice as wide as the previous wave.
func waves[T any](ctx context.Context, a *actor, v verb[T], batches [][]plan.Item[T], out *outcome[T]) {
	width, strikes := 1, 0
	for len(batches) > 0 && strikes < maxStrikes {
		wave := batches[:min(width, len(batches))]
		batches = batches[len(wave):]
		succeeded, stop := callAll(ctx, a, v, wave, out)
		if succeeded {
			width, strikes = min(width*2, maxParallel), 0
		} else {
			width, strikes = 1, strikes+1
		}
		if stop {
			break
		}
	}
	for _, batch := range batches {
		out.untried = append(out.untried, batch...)
	}
}

// callAll makes the calls of one wave at once. It returns stop when a call was not made or
// not answered.
func callAll[T any](ctx context.Context, a *actor, v verb[T], wave [][]plan.Item[T], out *outcome[T]) (succeeded, stop bool) {
	results := make([]result[T], len(wave))
	var calls sync.WaitGroup
	for i, batch := range wave {
		calls.Go(func() { results[i] = callOne(ctx, a, v, batch) })
	}
	calls.Wait()
	for i, batch := range wave {
		if errors.Is(results[i].err, ErrBackingOff) {
			out.untried = append(out.untried, batch...)
			stop = true
			continue
		}
		for _, item := range batch {
			key := attempt{v.name, item.ID}
			if err := results[i].errOf(item); err != nil {
				out.errs[item.ID] = err
				out.failed = append(out.failed, item)
				continue
			}
			delete(a.history.failures, key)
			delete(out.errs, item.ID)
			out.succeeded = append(out.succeeded, item)
			succeeded = true
		}
		stop = stop || unanswered(results[i].err)
	}
	a.acted = true
	return succeeded, stop
}

func unanswered(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, ErrHanging)
}

// result is the result of one call.
type result[T any] struct {
	succeeded, failed map[string]bool
	err               error
}

// errNoReason is the error of an item that an adapter lists as failed without an error.
var errNoReason = errors.New("the adapter lists it as failed and returns no error")

// errOf returns nil for an item that succeeded: it is listed so, or not listed and the call
// returned no error.
func (r result[T]) errOf(item plan.Item[T]) error {
	switch {
	case r.failed[item.ID] && r.err == nil:
		return errNoReason
	case r.failed[item.ID]:
		return r.err
	case r.succeeded[item.ID]:
		return nil
	default:
		return r.err
	}
}

func callOne[T any](ctx context.Context, a *actor, v verb[T], batch []plan.Item[T]) result[T] {
	values := make([]T, len(batch))
	for i, item := range batch {
		values[i] = item.Value
	}
	type lists struct{ succeeded, failed []T }
	employer := copyOf(a.employer)
	answer, err := call(ctx, a.provider, a.target, v.name, func(ctx context.Context) (lists, error) {
		succeeded, failed, err := v.call(ctx, employer, values)
		if err != nil && len(succeeded) > 0 {
			// A partial success shows that the provider works, so it does not count towards
			// backing off.
			return lists{succeeded, failed}, partial{err}
		}
		return lists{succeeded, failed}, err
	})
	return result[T]{succeeded: idSet(answer.succeeded, v.id), failed: idSet(answer.failed, v.id), err: err}
}

// partial is the error of a call in which some items succeeded.
type partial struct{ error }

func (p partial) Unwrap() error { return p.error }

func idSet[T any](items []T, id func(T) string) map[string]bool {
	set := make(map[string]bool, len(items))
	for _, item := range items {
		set[id(item)] = true
	}
	return set
}
