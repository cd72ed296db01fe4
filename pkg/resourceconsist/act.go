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
	// defaultBatch is the number of items per call, without BatchOptions.
	defaultBatch = 20

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

	// failures holds the attempted items that failed, by id.
	failures map[string]callFailure

	// works is true once a call has succeeded for an item.
	works bool
}

// callFailure is why an item failed. size is the number of items in its call, and partial is true if others of them
// have succeeded: then the adapter lists which have failed.
type callFailure struct {
	err     error
	size    int
	partial bool
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
	batch    int // items per call
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

// run calls a verb: first for items that have not failed before, then for failed items that are due, the item with the
// fewest failures first.
func run[T any](ctx context.Context, a *actor, v verb[T]) outcome[T] {
	out := outcome[T]{failures: map[string]callFailure{}}
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
	history := func(item plan.Item[T]) failure { return a.history.failures[attempt{v.name, item.ID}] }
	batch := func(item plan.Item[T]) int { return history(item).batch }
	slices.SortStableFunc(again, func(x, y plan.Item[T]) int { return cmp.Compare(history(x).times, history(y).times) })
	batches := slices.Collect(slices.Chunk(fresh, a.batch))
	if len(batches) == 0 && len(again) > 0 {
		batches = probe(chunks(again, batch), history(again[0]).times)
	} else {
		batches = append(batches, chunks(again, batch)...)
	}
	waves(ctx, a, v, batches, &out)
	if out.works { // the items that failed with all others are due, too
		isDue := func(item plan.Item[T]) bool { return history(item).withAll }
		due := slices.DeleteFunc(slices.Clone(resting), func(item plan.Item[T]) bool { return !isDue(item) })
		resting = slices.DeleteFunc(resting, isDue)
		waves(ctx, a, v, chunks(due, batch), &out)
	}
	retryItems(ctx, a, v, &out)
	for _, item := range out.failed {
		cause := out.failures[item.ID]
		withAll := !cause.partial && !out.works
		a.history.failed(attempt{v.name, item.ID}, failure{err: cause.err, name: item.Name, batch: a.nextBatch(cause, out.works), withAll: withAll}, a.now())
	}
	out.failed = append(out.failed, resting...)
	for _, items := range []*[]plan.Item[T]{&out.succeeded, &out.failed, &out.untried} {
		slices.SortFunc(*items, func(x, y plan.Item[T]) int { return cmp.Compare(x.ID, y.ID) })
	}
	a.untried += len(out.untried)
	return out
}

// chunks returns the items in calls. No call has more items than any of its items allows.
func chunks[T any](items []plan.Item[T], batch func(plan.Item[T]) int) [][]plan.Item[T] {
	items = slices.Clone(items)
	slices.SortStableFunc(items, func(x, y plan.Item[T]) int { return cmp.Compare(batch(y), batch(x)) })
	var all [][]plan.Item[T]
	for len(items) > 0 {
		size := batch(items[0])
		other := slices.IndexFunc(items, func(item plan.Item[T]) bool { return batch(item) != size })
		if other < 0 {
			other = len(items)
		}
		size = min(size, other)
		all, items = append(all, items[:size]), items[size:]
	}
	return all
}

// probe takes a part out of the first call, half as large for each failure, and another part each time.
// Nothing else shows whether a provider fails, or an item that fails its whole call.
func probe[T any](calls [][]plan.Item[T], failures int) [][]plan.Item[T] {
	if len(calls) == 0 {
		return nil
	}
	first := calls[0]
	size := max(1, len(first)>>min(failures, 8))
	if size == len(first) {
		return calls
	}
	at := failures * size % (len(first) - size + 1)
	return slices.Concat([][]plan.Item[T]{first[at : at+size], slices.Concat(first[:at], first[at+size:])}, calls[1:])
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
		for _, item := range batch {
			err := results[i].itemError(item)
			switch {
			case errors.Is(err, ErrBackingOff):
				out.untried = append(out.untried, item)
			case err != nil:
				out.failures[item.ID] = callFailure{err, len(batch), results[i].isPartial()}
				out.failed = append(out.failed, item)
			default:
				delete(a.history.failures, attempt{v.name, item.ID})
				delete(out.failures, item.ID)
				out.succeeded = append(out.succeeded, item)
				succeeded = true
			}
		}
		stop = stop || errors.Is(results[i].err, ErrBackingOff) || unanswered(results[i].err)
	}
	out.works = out.works || succeeded
	a.acted = true
	return succeeded, stop
}

// nextBatch returns how many items the next call with a failed item may have. A call that fails as a whole while others
// succeed is split in four, until the item that fails it is alone.
func (a *actor) nextBatch(f callFailure, works bool) int {
	if works && !f.partial {
		return max(1, f.size/4)
	}
	return a.batch
}

func unanswered(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, ErrHanging)
}

// result is the result of one call.
type result[T any] struct {
	succeeded, failed map[string]bool
	err               error
}

// isPartial reports whether the call has succeeded for some of its items: the adapter lists which have failed.
func (r result[T]) isPartial() bool { return len(r.succeeded) > 0 }

// errNoReason is the error of an item that an adapter lists as failed without an error.
var errNoReason = errors.New("the adapter lists it as failed and returns no error")

// itemError returns nil for an item that succeeded: it is listed so, or not listed and the call
// returned no error.
func (r result[T]) itemError(item plan.Item[T]) error {
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
	employer := copyObject(a.employer)
	answer, err := call(ctx, a.provider, a.target, v.name, func(ctx context.Context) (result[T], error) {
		succeeded, failed, err := v.call(ctx, employer, values)
		answer := result[T]{succeeded: idSet(succeeded, v.id), failed: idSet(failed, v.id)}
		if err != nil && len(succeeded) > 0 {
			// A partial success shows that the provider works, so it does not count towards
			// backing off.
			return answer, partial{err}
		}
		return answer, err
	})
	answer.err = err
	return answer
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
