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
	// maxPaced is the number of sources that have a rate of their own; beyond it, the rate of the
	// least recently seen source starts again.
	maxPaced = 1024

	// sourcesInAll bounds all paced sources together, as a number of sources at their full rate.
	sourcesInAll = 2

	// longestPace is the time for which a review may wait for its rate. A review that would wait
	// longer is rejected at once, so that its connection is free for the next review.
	longestPace = 2 * time.Second

	// burst is the time at full rate that a source may use at once.
	burst = 4 * time.Second
)

// pace slows down sources that are not known to be API servers: connections, reviews and bytes in a
// second, for each source and for all of them. A TLS handshake, and reading and decoding a review, take
// CPU time that the other work of the process needs. It is safe for concurrent use.
type pace struct {
	each pacing
	all  *rates

	mu      sync.Mutex
	sources *lru.Cache // netip.Addr -> *rates
}

// pacing bounds the requests of one source in a second.
type pacing struct {
	connections, reviews, bytes float64
}

// rates are the limiters of one source, or of all sources together.
type rates struct {
	connections, reviews, bytes *rate.Limiter
}

func newPace(each pacing) *pace {
	p := &pace{each: each, sources: lru.New(maxPaced)}
	p.all = p.rates(sourcesInAll)
	return p
}

// rates returns new rates for the given number of sources.
func (p *pace) rates(sources float64) *rates {
	limiter := func(each float64) *rate.Limiter {
		return rate.NewLimiter(rate.Limit(each*sources), max(1, int(each*sources*burst.Seconds())))
	}
	return &rates{connections: limiter(p.each.connections), reviews: limiter(p.each.reviews), bytes: limiter(p.each.bytes)}
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

// connects reports whether another connection of a source is within the rates.
func (p *pace) connects(source netip.Addr) bool {
	now := time.Now()
	own := p.ratesFor(source).connections.ReserveN(now, 1)
	all := p.all.connections.ReserveN(now, 1)
	if own.DelayFrom(now) == 0 && all.DelayFrom(now) == 0 {
		return true
	}
	cancel([]*rate.Reservation{own, all}, now)
	return false
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
