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
)

const (
	// MaxTries bounds how often one call is tried.
	MaxTries = 3

	// MaxRetryAfter bounds what a service can ask for in Retry-After.
	MaxRetryAfter = 5 * time.Minute
)

// retry is how one call is repeated. A POST is an order: a service that has seen one may
// have begun, whatever became of the answer. So a POST is repeated, with the same trace id,
// only when the service cannot have seen it, or when it says itself that it did not take it
// and when to come again. Asking for a result changes nothing, and is repeated freely.
type retry struct {
	timeout Timeouts
	now     func() time.Time
	random  func() float64

	// repeatable: the request changes nothing.
	repeatable bool

	// connected: the last try had a connection. Sent: any of them had.
	connected atomic.Bool
	sent      atomic.Bool

	// tries so far, and how long to wait before the next.
	tries int
	wait  time.Duration
}

// gotConnection is called before anything is written. Before it has a connection, a request
// cannot have reached anybody.
func (r *retry) gotConnection(httptrace.GotConnInfo) {
	r.connected.Store(true)
	r.sent.Store(true)
}

// client runs the tries on a transport.
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

// again says whether to try again. It never waits beyond the deadline of the call: the
// failure at hand says more than a deadline that was missed.
func (r *retry) again(ctx context.Context, response *http.Response, err error) bool {
	r.tries++
	if r.tries >= MaxTries || ctx.Err() != nil {
		return false
	}
	r.wait = backoff(r.tries, r.random())
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

// mayPass says whether a failure may be gone in a moment. A wrong certificate is not, and a
// service that has let one deadline pass has had its time.
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

// backoff doubles from 200 ms, and spreads over half of it, so that the calls that one
// fault has broken do not come back together.
func backoff(tries int, random float64) time.Duration {
	whole := 200 * time.Millisecond << min(tries-1, 4)
	return whole/2 + time.Duration(random*float64(whole/2))
}

// retryAfter reads the header of this name: seconds, or a date. What lies in the past, is
// negative or cannot be read is as good as absent; what lies far ahead is capped.
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
	// Sub saturates, so a date in the year 9999 is far, not negative.
	return min(date.Sub(now), MaxRetryAfter), true
}

// jitter is a random number from 0 to 1.
func jitter() float64 { return rand.Float64() }
