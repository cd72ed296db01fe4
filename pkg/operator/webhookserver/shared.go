package webhookserver

import (
	"context"
	"sync"
)

// sharedLedger is a ledger for many goroutines.
type sharedLedger struct {
	mu     sync.Mutex
	ledger *ledger

	// freed is closed, and replaced, when an amount is released.
	freed chan struct{}

	// evicted counts evictions.
	evicted func()
}

func newSharedLedger(limit, perSource int64, evicted func()) *sharedLedger {
	return &sharedLedger{ledger: newLedger(limit, perSource), freed: make(chan struct{}), evicted: evicted}
}

// tryGrow increases a hold, at the cost of other sources if necessary. It reports whether it
// did.
func (s *sharedLedger) tryGrow(h *hold, amount int64) bool {
	ok, _ := s.attempt(h, amount)
	return ok
}

// grow waits until tryGrow succeeds. It returns the cause of ctx.
func (s *sharedLedger) grow(ctx context.Context, h *hold, amount int64) error {
	for {
		ok, freed := s.attempt(h, amount)
		if ok {
			return nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// attempt returns with a failure the channel that is closed when another attempt can succeed.
func (s *sharedLedger) attempt(h *hold, amount int64) (ok bool, freed <-chan struct{}) {
	s.mu.Lock()
	evicted, ok := s.ledger.grow(h, amount)
	freed = s.freed
	s.mu.Unlock()
	for _, victim := range evicted {
		s.evicted()
		victim.evict()
	}
	return ok, freed
}

// used moves a hold behind the others of its source in the order of eviction.
func (s *sharedLedger) used(h *hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ledger.used(h)
}

// pin protects a hold from eviction. It returns false when it is evicted already.
func (s *sharedLedger) pin(h *hold) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.pinned = true
	return !h.gone
}

// close releases the amount of a hold.
func (s *sharedLedger) close(h *hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ledger.close(h)
	close(s.freed)
	s.freed = make(chan struct{})
}

// held returns the sum of all holds.
func (s *sharedLedger) held() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger.held
}
