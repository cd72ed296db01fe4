// Package loadshed refuses work while the memory of the process is nearly used up. The kernel would
// kill the process, with all the work that it has begun: an answer "try again" costs one request.
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
	// defaultShare leaves a quarter of the limit to work that no Gate lets in, and to garbage.
	defaultShare = 0.75

	// retryAfter is when work that was refused may try again.
	retryAfter = 5 * time.Second

	// collectEvery is how often a Gate that refuses has the collector find out what is still alive.
	collectEvery = 10 * time.Second
)

// Options of a Gate. Fields that are zero take their defaults.
type Options struct {
	// Limit is the memory of the process in bytes, as GOMEMLIMIT. Default: no limit.
	Limit int64

	// Share of the limit above which work is refused. Default: 0.75.
	Share float64

	// Used returns the bytes that are in use without the work of the Gate. Default: Live.
	Used func() int64

	// Collect makes Used up to date. It is called in a goroutine. Default: runtime.GC.
	Collect func()

	// Clock of the process. Default: clock.RealClock.
	Clock clock.PassiveClock
}

// Gate lets work in while it fits. It is safe for concurrent use.
type Gate struct {
	options Options

	mu        sync.Mutex
	inFlight  int64
	collected time.Time
}

// FullError is why work is refused.
type FullError struct {
	// RetryAfter is when it makes sense to try again.
	RetryAfter time.Duration
}

// Error names the way out.
func (e *FullError) Error() string {
	return fmt.Sprintf("the manager is short of memory and does not begin this now: try again in %s, with smaller objects or fewer at a time", e.RetryAfter)
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

// Enter lets work in that takes so many bytes, about, until leave is called, once. The error is a
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

// InFlight returns the bytes of the work that is let in.
func (g *Gate) InFlight() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inFlight
}

// Fits reports whether work of asked bytes may begin when used bytes are in use and work of inFlight
// bytes has begun, of which any part may be in use already.
func Fits(most, used, inFlight, asked int64) bool {
	return asked <= most-used-inFlight
}

// most is what may be in use, with all work.
func (g *Gate) most() int64 { return int64(float64(g.options.Limit) * g.options.Share) }

// collect lets the collector run. Without it the bytes in use would be those of the last collection,
// and a Gate that refuses everything makes nothing that starts another one.
func (g *Gate) collect() {
	if now := g.options.Clock.Now(); now.Sub(g.collected) >= collectEvery {
		g.collected = now
		go g.options.Collect()
	}
}
