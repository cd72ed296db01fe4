package alibabacloudslb

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// maxBackoff bounds the wait between two attempts.
const maxBackoff = 5 * time.Second

// call makes one API call, and makes it again while the API asks to come back later. It
// returns when ctx ends, whatever the SDK does: that knows no contexts, so an exchange
// that is abandoned ends by itself after Config.CallTimeout, and holds its slot till then.
//
// exchange must be safe to repeat. It stores its answer only through what it returns.
func call[T any](ctx context.Context, c *Client, action string, exchange func() (T, error)) (T, error) {
	backoff := c.config.FirstBackoff
	for attempt := 1; ; attempt++ {
		answer, err := c.once(ctx, action, func() (any, error) { return exchange() })
		if err == nil {
			return answer.(T), nil
		}
		var zero T
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

// withoutPanic keeps a panic of the SDK, as over an answer of an unexpected shape, away
// from the manager.
func withoutPanic(exchange func() (any, error)) (answer any, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the SDK panicked: %v", r)
		}
	}()
	return exchange()
}

// endOf is the error of ctx, or, when a limiter foresaw its end, the end it foresaw.
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

// jittered is between half of d and d, so that callers who were throttled together do not
// come back together.
func jittered(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2+1)
}
