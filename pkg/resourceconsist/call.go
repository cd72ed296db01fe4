package resourceconsist

import (
	"cmp"
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

	"github.com/podops-dev/podops/pkg/runtime/backoff"
)

// Errors of calls that were not made, or that outlived their deadline.
var (
	// ErrHanging is returned while an earlier call for this employer has outlived its
	// deadline and is still running. The controller does nothing for the employer until
	// that call returns, because two concurrent calls could undo each other. The adapter
	// should pass its context on.
	ErrHanging = errors.New("an earlier call of the adapter still hangs")

	// ErrBackingOff is returned while the provider is not called because its last calls
	// have all failed, or it has requested that (Throttled).
	ErrBackingOff = errors.New("the provider is not called for a while: its last calls have all failed, or it has limited them")
)

// Throttled returns the error of a call that the provider has rejected since it gets too many, as HTTP does with the status 429.
// The provider's instance is not called for the namespace for that time, at most five minutes: the time in a Retry-After
// header, or a second without one. The items of the call that did not succeed have not failed.
func Throttled(cause error, after time.Duration) error {
	return &throttled{cause, cmp.Or(min(max(after, 0), maxThrottle), firstBreak)}
}

// throttled is the error of a call that was rejected by a limit.
type throttled struct {
	cause error
	after time.Duration
}

func (t *throttled) Error() string { return t.cause.Error() }

func (t *throttled) Unwrap() error { return t.cause }

// Is makes the call one that was not made.
func (t *throttled) Is(target error) bool { return target == ErrBackingOff }

const (
	// breakAfter is the number of failures in a row, of reads and writes, after which the
	// controller backs off from the provider.
	breakAfter = 8
	firstBreak = time.Second
	lastBreak  = 30 * time.Second

	// maxThrottle bounds the time for which a provider may request that it is not called.
	maxThrottle = 5 * time.Minute

	// maxInstances bounds the instances of a namespace whose failures are counted apart. The others are counted together.
	maxInstances = 64

	// maxHanging bounds the goroutines of calls that never return.
	maxHanging = 32

	// grace is the time that a call has after its deadline to return by itself.
	grace = 500 * time.Millisecond
)

// target is what a call is for: an employer, and the instance of the provider that has its items.
type target struct {
	employer types.NamespacedName
	instance string // empty without ProviderInstanceOptions
}

// provider bounds how often one adapter is called, and for how long. It backs off from an instance
// after breakAfter failures in a row, for each namespace apart: neither an instance that is away nor the
// employers of another namespace delay the others. It is safe for concurrent use.
//
// It has no half-open state, unlike the circuit breakers of package webhookclient: the reads of a
// reconcile come first, and writes begin with a single call (waves), so that few calls reach a
// provider that is still down, and each failure starts the next pause.
type provider struct {
	limiter flowcontrol.RateLimiter
	timeout time.Duration
	tries   int
	clock   clock.PassiveClock

	mu      sync.Mutex
	failing map[string]map[string]failing // by namespace and instance
	hanging map[types.NamespacedName]int
	hung    int
}

// failing is an instance whose last calls failed.
type failing struct {
	calls int // in a row
	until time.Time
}

func newProvider(s settings) *provider {
	return &provider{
		limiter: flowcontrol.NewTokenBucketRateLimiter(s.qps, s.burst), timeout: s.timeout, tries: s.tries, clock: s.clock,
		failing: map[string]map[string]failing{}, hanging: map[types.NamespacedName]int{},
	}
}

// call makes one call for a target. It turns a panic into an error. It does not wait for
// a call that outlives its deadline; the outcome of that call is unknown.
func call[T any](ctx context.Context, p *provider, t target, verb string, f func(context.Context) (T, error)) (T, error) {
	var none T
	if err := p.admit(t); err != nil {
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
		p.settle(t, a.err)
		return a.value, wrap(verb, a.err)
	case <-limited.Done():
	}
	late := time.NewTimer(grace)
	defer late.Stop()
	select {
	case a := <-answers:
		p.settle(t, a.err)
		return a.value, wrap(verb, a.err)
	case <-late.C:
		p.leave(t)
		go func() {
			<-answers
			p.returned(t.employer)
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

func (p *provider) admit(t target) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hanging[t.employer] > 0 || p.hung >= maxHanging {
		return ErrHanging
	}
	instance := p.counted(t)
	if !p.clock.Now().Before(p.failing[t.employer.Namespace][instance].until) {
		return nil
	}
	if instance == "" {
		return ErrBackingOff
	}
	return fmt.Errorf("instance %s: %w", instance, ErrBackingOff)
}

// counted returns the instance that the failures of a target count for. The lock must be held.
func (p *provider) counted(t target) string {
	known := p.failing[t.employer.Namespace]
	if _, ok := known[t.instance]; !ok && len(known) >= maxInstances {
		return ""
	}
	return t.instance
}

// settle counts failures in a row.
func (p *provider) settle(t target, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	namespace, instance := t.employer.Namespace, p.counted(t)
	limited := &throttled{}
	isThrottled := errors.As(err, &limited)
	if some := (partial{}); err == nil || !isThrottled && errors.As(err, &some) {
		delete(p.failing[namespace], instance)
		if len(p.failing[namespace]) == 0 {
			delete(p.failing, namespace)
		}
		return
	}
	known, ok := p.failing[namespace]
	if !ok {
		known = map[string]failing{}
		p.failing[namespace] = known
	}
	f := known[instance]
	if isThrottled {
		known[instance] = failing{f.calls, p.clock.Now().Add(limited.after)}
		return
	}
	f.calls++
	if f.calls >= breakAfter {
		f.until = p.clock.Now().Add(backoff.Delay(firstBreak, f.calls-breakAfter, lastBreak))
	}
	known[instance] = f
}

func (p *provider) leave(t target) {
	p.settle(t, ErrHanging)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hanging[t.employer]++
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

// retryAfter returns the time until the instance of a target is called again; zero when no call has to wait.
func (p *provider) retryAfter(t target) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(0, p.failing[t.employer.Namespace][p.counted(t)].until.Sub(p.clock.Now()))
}
