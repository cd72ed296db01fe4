package webhookclient

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/podops-dev/podops/pkg/runtime/backoff"
)

const (
	// MaxTries bounds how often one call is tried.
	MaxTries = 3

	// MaxRetryAfter bounds the Retry-After of a service.
	MaxRetryAfter = 5 * time.Minute
)

// retry decides how one call is repeated. A service that has received a POST may have begun the
// task, even if the answer was lost. So a POST is repeated, with the same trace id, only if the
// service cannot have received it, or if the service rejected it with 429 or 503 and Retry-After. A
// poll changes nothing, and is repeated freely.
type retry struct {
	timeout Timeouts
	now     func() time.Time
	random  func() float64

	// repeatable means that the request changes nothing.
	repeatable bool

	// connected is set if the last try had a connection, sent if any of them had.
	connected atomic.Bool
	sent      atomic.Bool

	// tries counts the tries that have ended; wait is the delay before the next try.
	tries int
	wait  time.Duration
}

// gotConnection is called before anything is written. A request without a connection was not
// received.
func (r *retry) gotConnection(httptrace.GotConnInfo) {
	r.connected.Store(true)
	r.sent.Store(true)
}

// client returns a client that runs the tries on a transport.
func (r *retry) client(on *http.Client) *retryablehttp.Client {
	return &retryablehttp.Client{
		HTTPClient: on,
		RetryMax:   MaxTries - 1,
		CheckRetry: func(ctx context.Context, response *http.Response, err error) (bool, error) {
			return r.again(ctx, response, err), nil
		},
		Backoff:      func(time.Duration, time.Duration, int, *http.Response) time.Duration { return r.wait },
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
		PrepareRetry: func(*http.Request) error {
			r.connected.Store(false)
			return nil
		},
	}
}

// again reports whether to try again. It never waits beyond the deadline of the call: the present
// failure is more informative than a missed deadline.
func (r *retry) again(ctx context.Context, response *http.Response, err error) bool {
	r.tries++
	if r.tries >= MaxTries || ctx.Err() != nil {
		return false
	}
	r.wait = retryDelay(r.tries, r.random())
	switch {
	case err != nil:
		failure := classify(err, r.connected.Load())
		if !mayPass(failure) || failure.Sent && !r.repeatable {
			return false
		}
	case response.StatusCode == http.StatusTooManyRequests, response.StatusCode == http.StatusServiceUnavailable:
		after, has := retryAfter(response.Header, r.now())
		if !has && !r.repeatable || after > r.timeout.Wait {
			return false
		}
		r.wait = max(r.wait, after)
	default:
		if response.StatusCode < 500 || !r.repeatable {
			return false
		}
	}
	deadline, has := ctx.Deadline()
	return !has || r.now().Add(r.wait).Before(deadline)
}

// mayPass reports whether a failure may be temporary. A wrong certificate is not, and a service
// that has missed the deadline is not called again.
func mayPass(failure *Failure) bool {
	switch failure.Class {
	case ClassRefused, ClassDNS, ClassConnectionBroken:
		return true
	case ClassTimeout:
		return !failure.Sent
	default:
		return false
	}
}

// retryDelay doubles from 200 ms, with a jitter of half the delay, so that calls that failed together are
// not repeated together.
func retryDelay(tries int, random float64) time.Duration {
	whole := backoff.Delay(200*time.Millisecond, tries-1, 3200*time.Millisecond)
	return whole/2 + time.Duration(random*float64(whole/2))
}

// retryAfter parses the header Retry-After: seconds, or a date. A value that is in the past,
// negative or unreadable counts as absent; a value above MaxRetryAfter is capped.
func retryAfter(header http.Header, now time.Time) (time.Duration, bool) {
	value := strings.TrimSpace(header.Get("Retry-After"))
	if value != "" && strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.ParseInt(value, 10, 64)
		if err != nil || seconds > int64(MaxRetryAfter/time.Second) {
			return MaxRetryAfter, true
		}
		return time.Duration(seconds) * time.Second, true
	}
	date, err := http.ParseTime(value)
	if err != nil || !date.After(now) {
		return 0, false
	}
	// Sub saturates, so the distance to a date in the year 9999 is positive.
	return min(date.Sub(now), MaxRetryAfter), true
}

// jitter returns a random number from 0 to 1.
func jitter() float64 { return rand.Float64() }
