package alibabacloudslb

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/podops-dev/podops/pkg/resourceconsist"
)

// maxBackoff bounds the wait between two attempts.
const maxBackoff = 5 * time.Second

// call makes one API call, and retries it while the API is throttled or busy. The last error of an API that throttles is
// resourceconsist.Throttled: the SDK does not return a Retry-After header. It returns
// when ctx ends. The SDK does not use contexts, so an abandoned exchange ends after
// Config.CallTimeout, and holds its slot until then.
//
// exchange must be safe to repeat. It returns its answer, and stores it nowhere else.
func call[T any](ctx context.Context, c *Client, action string, exchange func() (T, error)) (T, error) {
	backoff := c.config.FirstBackoff
	for attempt := 1; ; attempt++ {
		answer, err := c.once(ctx, action, func() (any, error) { return exchange() })
		if err == nil {
			return answer.(T), nil
		}
		var zero T
		if err.isThrottled() && attempt >= c.config.Attempts {
			return zero, resourceconsist.Throttled(err, backoff)
		}
		if ctx.Err() != nil || !err.transient() || attempt >= c.config.Attempts {
			return zero, err
		}
		if wait(ctx, jittered(backoff)) != nil {
			return zero, err
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

// once makes one exchange, when a slot and the rate limit allow it.
func (c *Client) once(ctx context.Context, action string, exchange func() (any, error)) (any, *APIError) {
	if err := c.limiter.Wait(ctx); err != nil {
		return nil, &APIError{Action: action, Message: "waiting for the rate limit: " + err.Error(), cause: endOf(ctx)}
	}
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, &APIError{Action: action, Message: "waiting for other calls: " + ctx.Err().Error(), cause: ctx.Err()}
	}
	type result struct {
		answer any
		err    error
	}
	done := make(chan result, 1)
	go func() {
		defer func() { <-c.slots }()
		answer, err := withoutPanic(exchange)
		done <- result{answer, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			return nil, newAPIError(action, r.err, c.redact)
		}
		return r.answer, nil
	case <-ctx.Done():
		return nil, &APIError{Action: action, Message: ctx.Err().Error(), cause: ctx.Err()}
	}
}

// withoutPanic returns a panic of the SDK, as for an answer of an unexpected shape, as an
// error.
func withoutPanic(exchange func() (any, error)) (answer any, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the SDK panicked: %v", r)
		}
	}()
	return exchange()
}

// endOf returns the error of ctx, or a deadline error when a limiter has rejected a wait
// beyond the deadline.
func endOf(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return context.DeadlineExceeded
}

// wait returns nil after d, or early with an error.
func wait(ctx context.Context, d time.Duration) error {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d {
		return errors.New("the deadline comes first")
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// jittered returns a duration between half of d and d, so that callers that were throttled
// together do not retry together.
func jittered(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2+1)
}
