package webhookserver

import (
	"context"
	"errors"
	"net/netip"
	"sync"
)

// errBusy means that too many reviews of the same source wait already.
var errBusy = errors.New("too many reviews of this client wait")

// lane bounds how many reviews run at once. A free slot goes to the waiting source with the fewest
// running reviews, and among equal sources to the source that has waited longest. It is safe for
// concurrent use.
type lane struct {
	slots      int
	maxWaiting int // for each source

	mu      sync.Mutex
	running map[netip.Addr]int
	total   int
	// waiting is ordered by arrival.
	waiting []*waiter
	queued  map[netip.Addr]int
}

// waiter is a review that waits for a slot.
type waiter struct {
	source netip.Addr
	// ready is closed when the waiter has the slot.
	ready chan struct{}
}

func newLane(slots, maxWaiting int) *lane {
	return &lane{slots: slots, maxWaiting: maxWaiting, running: map[netip.Addr]int{}, queued: map[netip.Addr]int{}}
}

// acquire waits for a slot, which the caller must release with leave. It returns errBusy, or
// the cause of ctx.
func (l *lane) acquire(ctx context.Context, source netip.Addr) error {
	w, err := l.enter(source)
	if err != nil {
		return err
	}
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
	}
	if !l.giveUp(w) { // The slot was granted at the same moment.
		l.leave(source)
	}
	return context.Cause(ctx)
}

func (l *lane) enter(source netip.Addr) (*waiter, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queued[source] >= l.maxWaiting {
		return nil, errBusy
	}
	w := &waiter{source: source, ready: make(chan struct{})}
	l.waiting = append(l.waiting, w)
	l.queued[source]++
	l.dispatch()
	return w, nil
}

// leave releases a slot.
func (l *lane) leave(source netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total--
	decrement(l.running, source)
	l.dispatch()
}

// giveUp removes a waiter. It returns false when the waiter has a slot already.
func (l *lane) giveUp(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, other := range l.waiting {
		if other == w {
			l.remove(i)
			return true
		}
	}
	return false
}

// dispatch assigns free slots. The caller holds the lock.
func (l *lane) dispatch() {
	for l.total < l.slots && len(l.waiting) > 0 {
		next := 0
		for i, w := range l.waiting {
			if l.running[w.source] < l.running[l.waiting[next].source] {
				next = i
			}
		}
		w := l.waiting[next]
		l.remove(next)
		l.total++
		l.running[w.source]++
		close(w.ready)
	}
}

func (l *lane) remove(i int) {
	decrement(l.queued, l.waiting[i].source)
	l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
}

func decrement(counts map[netip.Addr]int, source netip.Addr) {
	if counts[source]--; counts[source] <= 0 {
		delete(counts, source)
	}
}
