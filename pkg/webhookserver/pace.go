package webhookserver

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"
)

const (
	// maxPaced is how many sources have a rate of their own; the least recently seen one starts again.
	maxPaced = 1024

	// sourcesInAll bounds all paced sources together, as a number of sources at their full rate.
	sourcesInAll = 2

	// longestPace is how long a review may wait for its rate. A review that would wait longer is
	// rejected at once, so that its connection is free for the next review.
	longestPace = 2 * time.Second

	// burst is the time at full rate that a source may use at once.
	burst = 4 * time.Second
)

// pace slows down sources that are not known to be API servers: reviews and bytes in a second, for
// each source and for all of them. Reading and decoding a review takes CPU time that the other work
// of the process needs. It is safe for concurrent use.
type pace struct {
	reviews, bytes float64 // in a second, for each source
	all            *rates

	mu      sync.Mutex
	sources *lru.Cache // netip.Addr -> *rates
}

// rates are the limiters of one source, or of all.
type rates struct {
	reviews, bytes *rate.Limiter
}

func newPace(reviews int, bytes int64) *pace {
	p := &pace{reviews: float64(reviews), bytes: float64(bytes), sources: lru.New(maxPaced)}
	p.all = p.rates(sourcesInAll)
	return p
}

// rates returns new rates for the given number of sources.
func (p *pace) rates(sources float64) *rates {
	limiter := func(each float64) *rate.Limiter {
		return rate.NewLimiter(rate.Limit(each*sources), max(1, int(each*sources*burst.Seconds())))
	}
	return &rates{reviews: limiter(p.reviews), bytes: limiter(p.bytes)}
}

// ratesFor returns the rates of a source.
func (p *pace) ratesFor(source netip.Addr) *rates {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, found := p.sources.Get(source); found {
		return known.(*rates)
	}
	fresh := p.rates(1)
	p.sources.Add(source, fresh)
	return fresh
}

// wait waits until a review of a size is within the rates. It returns errBusy when that takes longer
// than longestPace, or the cause of ctx.
func (p *pace) wait(ctx context.Context, source netip.Addr, size int64) error {
	now := time.Now()
	own := p.ratesFor(source)
	var reservations []*rate.Reservation
	var delay time.Duration
	for _, step := range []struct {
		limiter *rate.Limiter
		tokens  int
	}{
		{own.reviews, 1}, {own.bytes, int(size)}, {p.all.reviews, 1}, {p.all.bytes, int(size)},
	} {
		reservation := step.limiter.ReserveN(now, min(step.tokens, step.limiter.Burst()))
		reservations = append(reservations, reservation)
		delay = max(delay, reservation.DelayFrom(now))
		if delay > longestPace {
			cancel(reservations, now)
			return errBusy
		}
	}
	if delay == 0 {
		return nil
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		cancel(reservations, now)
		return context.Cause(ctx)
	}
}

// cancel returns the tokens, so that a rejected review takes no tokens from the next review.
func cancel(reservations []*rate.Reservation, at time.Time) {
	for _, reservation := range reservations {
		reservation.CancelAt(at)
	}
}
