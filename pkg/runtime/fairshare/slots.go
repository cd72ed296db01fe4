package fairshare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// ErrFull is the error for an owner that has the maximum number of calls waiting.
var ErrFull = errors.New("too many are waiting already")

// SlotOptions of Slots.
type SlotOptions struct {
	// Slots is the number of slots; at least 1.
	Slots int

	// Each is the number of slots that one owner may hold at a time; 0: all slots.
	Each int

	// Waiting is how many calls of one owner may wait; 0: any number.
	Waiting int
}

// Slots bounds how many pieces of work run at a time. A free slot goes to the owner that holds the
// fewest, and among equals to the owner that was served the longest ago. It is safe for concurrent
// use.
type Slots struct {
	options SlotOptions

	mu     sync.Mutex
	free   int
	turn   uint64
	owners map[string]*holder
}

// holder is an owner that holds a slot or waits for it.
type holder struct {
	held    int
	waiting []chan struct{}

	// served is the turn of the last slot.
	served uint64
}

// NewSlots returns Slots that are all free.
func NewSlots(options SlotOptions) *Slots {
	options.Slots = max(1, options.Slots)
	if options.Each <= 0 {
		options.Each = options.Slots
	}
	return &Slots{options: options, free: options.Slots, owners: map[string]*holder{}}
}

// Acquire waits for a slot, which the caller must release once. The error is ErrFull, without
// waiting, or the error of ctx.
func (s *Slots) Acquire(ctx context.Context, owner string) (release func(), err error) {
	granted, err := s.enqueue(owner)
	if err != nil {
		return nil, err
	}
	select {
	case <-granted:
		return func() { s.release(owner) }, nil
	case <-ctx.Done():
	}
	if s.withdraw(owner, granted) {
		return nil, ctx.Err()
	}
	s.release(owner) // it was granted meanwhile
	return nil, ctx.Err()
}

func (s *Slots) enqueue(owner string) (chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.owners[owner]
	if held == nil {
		held = &holder{}
		s.owners[owner] = held
	}
	if s.options.Waiting > 0 && len(held.waiting) >= s.options.Waiting {
		return nil, fmt.Errorf("%w: %d", ErrFull, len(held.waiting))
	}
	granted := make(chan struct{})
	held.waiting = append(held.waiting, granted)
	s.grant()
	return granted, nil
}

// withdraw reports whether the call was still waiting.
func (s *Slots) withdraw(owner string, granted chan struct{}) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.owners[owner]
	at := slices.Index(held.waiting, granted)
	if at < 0 {
		return false
	}
	held.waiting = slices.Delete(held.waiting, at, at+1)
	s.forget(owner)
	return true
}

func (s *Slots) release(owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free++
	s.owners[owner].held--
	s.forget(owner)
	s.grant()
}

// forget removes an owner that neither holds nor waits.
func (s *Slots) forget(owner string) {
	if held := s.owners[owner]; held.held == 0 && len(held.waiting) == 0 {
		delete(s.owners, owner)
	}
}

// grant assigns free slots.
func (s *Slots) grant() {
	for s.free > 0 {
		next := s.next()
		if next == nil {
			return
		}
		s.free--
		s.turn++
		next.held++
		next.served = s.turn
		close(next.waiting[0])
		next.waiting = slices.Delete(next.waiting, 0, 1)
	}
}

// next returns the owner whose turn it is; nil if no waiting owner may hold another slot.
func (s *Slots) next() *holder {
	var first *holder
	for _, held := range s.owners {
		if len(held.waiting) == 0 || held.held >= s.options.Each {
			continue
		}
		if first == nil || held.held < first.held || held.held == first.held && held.served < first.served {
			first = held
		}
	}
	return first
}
