package resourceconsist

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

// Errors of calls that were not made, or not waited for.
var (
	// ErrHanging: an earlier call for this employer did not return at its deadline and is
	// still under way. Nothing is done for the employer until it returns: the two would
	// not know of each other. The adapter should pass its context on.
	ErrHanging = errors.New("an earlier call of the adapter still hangs")

	// ErrBackingOff: the last calls of the provider have all failed, and it is not called
	// for a while.
	ErrBackingOff = errors.New("the provider is not called for a while: its last calls have all failed")
)

const (
	// breakAfter failures in a row, of calls that read as well as of calls that write,
	// the provider is not called for a while.
	breakAfter = 8
	firstBreak = time.Second
	lastBreak  = 30 * time.Second

	// maxHanging bounds the goroutines that calls without an end may hold.
	maxHanging = 32

	// grace is what a call has after its deadline to return by itself.
	grace = 500 * time.Millisecond
)

// provider stands between the controller and the calls of one adapter: it bounds their
// rate and their time, and leaves a provider alone that fails all the time. It is safe
// for concurrent use.
type provider struct {
	limiter flowcontrol.RateLimiter
	timeout time.Duration
	tries   int
	clock   clock.PassiveClock

	mu       sync.Mutex
	failures int // in a row
	until    time.Time
	hanging  map[types.NamespacedName]int
	hung     int
}

func newProvider(s settings) *provider {
	return &provider{
		limiter: flowcontrol.NewTokenBucketRateLimiter(s.qps, s.burst), timeout: s.timeout, tries: s.tries, clock: s.clock,
		hanging: map[types.NamespacedName]int{},
	}
}

// call makes one call for an employer. A panic becomes an error. A call that outlives its
// deadline is left behind, and its outcome is unknown.
func call[T any](ctx context.Context, p *provider, employer types.NamespacedName, verb string, f func(context.Context) (T, error)) (T, error) {
	var none T
	if err := p.admit(employer); err != nil {
		return none, fmt.Errorf("%s: %w", verb, err)
	}
	limited, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	if err := p.limiter.Wait(limited); err != nil {
		return none, fmt.Errorf("%s: waiting for its turn: %w", verb, err)
	}
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		var a answer
		defer func() {
			if cause := recover(); cause != nil {
				ctrllog.FromContext(ctx).Error(nil, "The adapter panics", "verb", verb, "cause", cause, "stack", string(debug.Stack()))
				a.err = fmt.Errorf("the adapter panics: %v", cause)
			}
			answers <- a
		}()
		a.value, a.err = f(limited)
	}()
	select {
	case a := <-answers:
		p.settle(a.err)
		return a.value, wrap(verb, a.err)
	case <-limited.Done():
	}
	late := time.NewTimer(grace)
	defer late.Stop()
	select {
	case a := <-answers:
		p.settle(a.err)
		return a.value, wrap(verb, a.err)
	case <-late.C:
		p.leave(employer)
		go func() {
			<-answers
			p.returned(employer)
		}()
		return none, fmt.Errorf("%s: %w: %w", verb, ErrHanging, limited.Err())
	}
}

func wrap(verb string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", verb, err)
}

func (p *provider) admit(employer types.NamespacedName) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hanging[employer] > 0 || p.hung >= maxHanging {
		return ErrHanging
	}
	if p.clock.Now().Before(p.until) {
		return ErrBackingOff
	}
	return nil
}

// settle counts failures in a row.
func (p *provider) settle(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if some := (partial{}); err == nil || errors.As(err, &some) {
		p.failures, p.until = 0, time.Time{}
		return
	}
	p.failures++
	if p.failures >= breakAfter {
		p.until = p.clock.Now().Add(backoff(p.failures-breakAfter, firstBreak, lastBreak))
	}
}

func (p *provider) leave(employer types.NamespacedName) {
	p.settle(ErrHanging)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hanging[employer]++
	p.hung++
}

func (p *provider) returned(employer types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hung--
	if p.hanging[employer]--; p.hanging[employer] <= 0 {
		delete(p.hanging, employer)
	}
}

// retryAfter is how long the provider is not called; zero when it is.
func (p *provider) retryAfter() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(0, p.until.Sub(p.clock.Now()))
}

// backoff doubles first with each time, up to last.
func backoff(times int, first, last time.Duration) time.Duration {
	for range times {
		if first >= last {
			return last
		}
		first *= 2
	}
	return min(first, last)
}
