package apiserver

import (
	"context"
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// chances are the random numbers of one request or event. They are a function of the seed and of what they are for, so
// that they do not depend on the order in which others request theirs.
type chances struct{ source *rand.PCG }

// chances returns the numbers for the nth request or event of a user.
func (s *Server) chances(user, verb, resource string, n uint64) chances {
	hash := fnv.New64a()
	for _, part := range []string{user, verb, resource} {
		_, _ = hash.Write([]byte(part))
		_, _ = hash.Write([]byte{0})
	}
	return chances{source: rand.NewPCG(s.options.Seed^hash.Sum64(), n)}
}

// next returns a number from 0 to 1.
func (c chances) next() float64 { return float64(c.source.Uint64()>>11) / (1 << 53) }

// delay returns the time that half of a request takes: a few milliseconds, and now and then much longer.
func (c chances) delay() time.Duration {
	delay := time.Duration(c.next() * float64(5*time.Millisecond))
	if c.next() < 0.02 {
		delay += time.Duration(c.next() * float64(250*time.Millisecond))
	}
	return delay
}

// lag returns the time by which an event of a watch is late: a few milliseconds, and now and then much longer.
func (c chances) lag() time.Duration {
	lag := time.Duration(c.next() * float64(10*time.Millisecond))
	if c.next() < 0.02 {
		lag += time.Duration(c.next() * float64(2*time.Second))
	}
	return lag
}

// sleep waits, and reports whether the context allowed it to.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
