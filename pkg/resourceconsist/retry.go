package resourceconsist

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/podops-dev/podops/pkg/resourceconsist/plan"
)

// firstPause is the pause between the first two tries of a call within a reconcile, doubled
// between the next two: with four tries less than half a second in all. It is far shorter
// than firstRetry, after which the next reconcile retries.
const firstPause = 25 * time.Millisecond

// pauses returns the jittered pauses between tries.
func (p *provider) pauses() wait.DelayFunc {
	return wait.Backoff{Duration: firstPause, Factor: 2, Jitter: 0.5, Steps: p.tries}.DelayFunc()
}

// retryRead repeats a read until it succeeds, up to p.tries times and at least once.
func retryRead[T any](ctx context.Context, p *provider, read func() (T, error)) (value T, err error) {
	try := 0
	// When the context ends in a pause, retryRead returns the error of the last try.
	_ = p.pauses().Until(ctx, true, true, func(context.Context) (done bool, _ error) {
		try++
		value, err = read()
		return err == nil || try >= p.tries || !repeatable(err), nil
	})
	return value, err
}

// retryItems calls the verb again for items that failed, up to p.tries times in all.
// Verbs are idempotent, so repeating a verb for an item is safe. Each pass ends after
// maxStrikes failed calls in a row, as every verb does.
func retryItems[T any](ctx context.Context, a *actor, v verb[T], out *outcome[T]) {
	try := 1
	done := func() bool { return try >= a.provider.tries || !slices.ContainsFunc(out.failed, out.mayRetry) }
	if done() {
		return
	}
	// Failed items stay in out when the context ends in a pause.
	_ = a.provider.pauses().Until(ctx, false, true, func(context.Context) (bool, error) {
		retryFailed(ctx, a, v, out, try)
		try++
		return done(), nil
	})
}

// retryFailed makes one pass over the failed items that may be retried, after a number of tries.
func retryFailed[T any](ctx context.Context, a *actor, v verb[T], out *outcome[T], tries int) {
	var again, final []plan.Item[T]
	for _, item := range out.failed {
		if out.mayRetry(item) {
			again = append(again, item)
			continue
		}
		final = append(final, item)
	}
	calls := chunks(again, func(item plan.Item[T]) int { return a.nextBatch(out.failures[item.ID], out.works) })
	if !out.works {
		calls = probe(calls, tries)
	}
	untried := out.untried
	out.failed, out.untried = final, nil
	waves(ctx, a, v, calls, out)
	// An item that this pass did not reach stays failed.
	out.failed, out.untried = append(out.failed, out.untried...), untried
}

// mayRetry reports whether the call for a failed item may be retried at once.
func (o *outcome[T]) mayRetry(item plan.Item[T]) bool { return repeatable(o.failures[item.ID].err) }

// repeatable reports whether a call may be retried at once. A retry of a call that timed
// out, or was not made, would only block its worker.
func repeatable(err error) bool {
	return err != nil && !unanswered(err) && !errors.Is(err, ErrBackingOff) && !errors.Is(err, errPanic)
}
