// Package loadshed rejects work while the memory of the process is nearly used up. Otherwise the
// kernel would kill the process with all the work in progress: a rejection costs one request.
package loadshed

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// defaultShare leaves a quarter of the limit to work outside of the Gate, and to garbage.
	defaultShare = 0.75

	// retryAfter is when rejected work may be retried.
	retryAfter = 5 * time.Second

	// collectEvery is the interval at which a Gate that rejects work runs the collector to update
	// Used.
	collectEvery = 10 * time.Second
)

// Options of a Gate. Fields that are zero take their defaults.
type Options struct {
	// Limit is the memory of the process in bytes, as GOMEMLIMIT. Default: no limit.
	Limit int64

	// Share of the limit above which work is rejected. Default: 0.75.
	Share float64

	// Used returns the bytes that are in use without the work of the Gate. Default: Live.
	Used func() int64

	// Collect makes Used up to date. It is called in a goroutine. Default: runtime.GC.
	Collect func()

	// Clock of the process. Default: clock.RealClock.
	Clock clock.PassiveClock
}

// Gate admits work while it fits. It is safe for concurrent use.
type Gate struct {
	options Options

	mu        sync.Mutex
	inFlight  int64
	collected time.Time
}

// FullError reports that work was rejected.
type FullError struct {
	// RetryAfter is when a retry can succeed.
	RetryAfter time.Duration
}

// Error includes the way out.
func (e *FullError) Error() string {
	return fmt.Sprintf("the manager is close to its memory limit and does not begin this now: try again in %s, "+
		"with smaller objects or fewer at a time", e.RetryAfter)
}

// New returns a Gate.
func New(options Options) *Gate {
	if options.Limit <= 0 {
		options.Limit = math.MaxInt64
	}
	if options.Share <= 0 {
		options.Share = defaultShare
	}
	if options.Used == nil {
		options.Used = Live
	}
	if options.Collect == nil {
		options.Collect = runtime.GC
	}
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	return &Gate{options: options}
}

// Enter admits work of about the given bytes until leave is called, once. The error is a
// *FullError.
func (g *Gate) Enter(bytes int64) (leave func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.options.Limit != math.MaxInt64 && !Fits(g.most(), g.options.Used(), g.inFlight, bytes) {
		g.collect()
		return nil, &FullError{RetryAfter: retryAfter}
	}
	g.inFlight += bytes
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.inFlight -= bytes
	}, nil
}

// InFlight returns the bytes of the admitted work.
func (g *Gate) InFlight() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inFlight
}

// Fits reports whether work of the requested bytes may begin when used bytes are in use and work of
// inFlight bytes has begun, of which any part may be in use already.
func Fits(most, used, inFlight, requested int64) bool {
	return requested <= most-used-inFlight
}

// most returns the bytes that may be in use, with all work.
func (g *Gate) most() int64 { return int64(float64(g.options.Limit) * g.options.Share) }

// collect runs the collector. Otherwise the number of bytes in use would be as old as the last
// collection, and a Gate that rejects all work would never cause another collection.
func (g *Gate) collect() {
	if now := g.options.Clock.Now(); now.Sub(g.collected) >= collectEvery {
		g.collected = now
		go g.options.Collect()
	}
}
