package resourceconsist

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/podops-dev/podops/pkg/resourceconsist/plan"
)

// firstPause lies between the first two tries of a call inside of a reconcile, twice that
// between the next two: with four tries less than half a second in all. It is far shorter
// than firstRetry, after which the next reconcile tries again.
const firstPause = 25 * time.Millisecond

// pauses returns the jittered pauses between tries.
func (p *provider) pauses() wait.DelayFunc {
	return wait.Backoff{Duration: firstPause, Factor: 2, Jitter: 0.5, Steps: p.tries}.DelayFunc()
}

// retryRead makes a call that reads until it succeeds, up to p.tries times and at least once.
func retryRead[T any](ctx context.Context, p *provider, read func() (T, error)) (value T, err error) {
	try := 0
	// That the context ended in a pause is no news: the error of the last try is returned.
	_ = p.pauses().Until(ctx, true, true, func(context.Context) (done bool, _ error) {
		try++
		value, err = read()
		return err == nil || try >= p.tries || !repeatable(err), nil
	})
	return value, err
}

// retryItems calls the verb again for single items that failed, up to p.tries times in all.
// A verb says what shall be, so calling it twice for an item does no harm. Each pass ends
// after maxStrikes calls in a row that fail, as every verb does.
func retryItems[T any](ctx context.Context, a *actor, v verb[T], out *outcome[T]) {
	try := 1
	done := func() bool { return try >= a.provider.tries || !slices.ContainsFunc(out.failed, out.mayRetry) }
	if done() {
		return
	}
	// What failed stays in out when the context ends in a pause.
	_ = a.provider.pauses().Until(ctx, false, true, func(context.Context) (bool, error) {
		try++
		retryFailed(ctx, a, v, out)
		return done(), nil
	})
}

// retryFailed is one pass over the items that failed and may succeed a moment later.
func retryFailed[T any](ctx context.Context, a *actor, v verb[T], out *outcome[T]) {
	var again [][]plan.Item[T]
	var final []plan.Item[T]
	for _, item := range out.failed {
		if out.mayRetry(item) {
			again = append(again, []plan.Item[T]{item})
			continue
		}
		final = append(final, item)
	}
	untried := out.untried
	out.failed, out.untried = final, nil
	waves(ctx, a, v, again, out)
	// An item that this pass did not reach has failed as before.
	out.failed, out.untried = append(out.failed, out.untried...), untried
}

// mayRetry reports whether the call for an item that failed may succeed a moment later.
func (o *outcome[T]) mayRetry(item plan.Item[T]) bool { return repeatable(o.errs[item.ID]) }

// repeatable reports whether a call may succeed a moment later. One that was not answered
// in time, or not made, would only hold its worker.
func repeatable(err error) bool {
	return err != nil && !unanswered(err) && !errors.Is(err, ErrBackingOff) && !errors.Is(err, errPanic)
}
