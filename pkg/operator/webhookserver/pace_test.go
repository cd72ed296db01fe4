package webhookserver

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// sent returns how many reviews of a size pass in a time, from as many clients as are needed.
func sent(t *testing.T, p *pace, n int, size int64, during time.Duration) int {
	t.Helper()
	count := 0
	for end := time.Now().Add(during); time.Now().Before(end); {
		switch err := p.wait(t.Context(), source(n), size); {
		case err == nil:
			count++
		case errors.Is(err, errBusy):
			time.Sleep(10 * time.Millisecond)
		default:
			t.Fatal(err)
		}
	}
	return count
}

func TestASourceIsPaced(t *testing.T) {
	for name, given := range map[string]struct {
		size      int64
		perSecond int
	}{
		"by reviews": {size: 10, perSecond: 50},
		"by bytes":   {size: 100, perSecond: 10},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPace(pacing{connections: 10, reviews: 50, bytes: 1000})
				first := sent(t, p, 1, given.size, time.Second)
				if least := given.perSecond * int(burst.Seconds()); first < least {
					t.Errorf("%d reviews in the first second, want the burst of %d", first, least)
				}
				// Ten seconds at the rate, and the remainder of the first second.
				remaining := sent(t, p, 1, given.size, 10*time.Second)
				if remaining < 9*given.perSecond || remaining > 11*given.perSecond {
					t.Errorf("%d reviews in ten seconds at %d a second", remaining, given.perSecond)
				}
			})
		})
	}
}

// opened returns how many connections of a source are admitted in a time.
func opened(p *pace, n int, during time.Duration) int {
	count := 0
	for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if p.connects(source(n)) {
			count++
		}
	}
	return count
}

func TestConnectionsOfASourceArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace(pacing{connections: 10, reviews: 50, bytes: 1 << 20})
		if first := opened(p, 1, time.Second); first < 40 || first > 51 {
			t.Errorf("%d connections in the first second at 10 a second, want the burst of 40 and the rate", first)
		}
		if later := opened(p, 1, 10*time.Second); later < 99 || later > 101 {
			t.Errorf("%d connections in ten seconds at 10 a second", later)
		}
		if others := opened(p, 2, 100*time.Millisecond); others < 40 {
			t.Errorf("%d connections of another source, want its burst of 40", others)
		}
	})
}

func TestASourceThatIsOverItsRateDoesNotSlowAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace(pacing{connections: 10, reviews: 50, bytes: 1 << 20})
		sent(t, p, 1, 10, 20*time.Second)
		start := time.Now()
		for range 50 {
			if err := p.wait(t.Context(), source(2), 10); err != nil {
				t.Fatal(err)
			}
		}
		if waited := time.Since(start); waited > 0 {
			t.Errorf("another source waited for %s", waited)
		}
	})
}

func TestAllSourcesTogetherArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace(pacing{connections: 10, reviews: 50, bytes: 1 << 20})
		var count atomic.Int64
		var group sync.WaitGroup
		for n := range 250 { // Each within its own burst.
			for range 10 {
				group.Go(func() {
					if err := p.wait(t.Context(), source(n), 10); err == nil {
						count.Add(1)
					}
				})
			}
		}
		group.Wait()
		least := int64(sourcesInAll * 50 * burst.Seconds())
		most := least + int64(sourcesInAll*50*longestPace.Seconds())
		if got := count.Load(); got < least || got > most+1 {
			t.Errorf("%d reviews of all sources at once, want %d to %d", got, least, most)
		}
	})
}

func TestAReviewWaitsForItsRateUntilItIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace(pacing{connections: 10, reviews: 1, bytes: 1 << 20})
		for range int(burst.Seconds()) {
			if err := p.wait(t.Context(), source(1), 1); err != nil {
				t.Fatal(err)
			}
		}
		ctx, stop := context.WithTimeoutCause(t.Context(), 500*time.Millisecond, errTimeout)
		defer stop()
		if err := p.wait(ctx, source(1), 1); !errors.Is(err, errTimeout) {
			t.Errorf("got %v, want the cause of the context", err)
		}
		// The tokens of the cancelled review are free for the next one.
		start := time.Now()
		if err := p.wait(t.Context(), source(1), 1); err != nil || time.Since(start) > time.Second {
			t.Errorf("waited for %s: %v", time.Since(start), err)
		}
	})
}
