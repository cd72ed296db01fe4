package opa

import "context"

// slots bounds how many evaluations of users' modules run at the same time.
type slots struct {
	all chan struct{}

	// slow bounds the evaluations for contexts of WithSlowLane. It has fewer slots than all, so
	// that such evaluations leave at least one slot to others.
	slow chan struct{}
}

func newSlots(all, slow int) slots {
	return slots{all: make(chan struct{}, all), slow: make(chan struct{}, slow)}
}

// slowLaneKey is the key of contexts that WithSlowLane returns.
type slowLaneKey struct{}

// WithSlowLane returns a context for evaluations of a namespace whose modules have used more than
// their share of CPU time. Such evaluations share a part of the slots and leave the others free.
func WithSlowLane(ctx context.Context) context.Context {
	return context.WithValue(ctx, slowLaneKey{}, true)
}

func isSlow(ctx context.Context) bool { return ctx.Value(slowLaneKey{}) != nil }

// acquire waits for a slot, and reports whether it acquired the slot before ctx ended.
func (s slots) acquire(ctx context.Context) bool {
	if isSlow(ctx) {
		select {
		case s.slow <- struct{}{}:
		case <-ctx.Done():
			return false
		}
	}
	select {
	case s.all <- struct{}{}:
		return true
	case <-ctx.Done():
		if isSlow(ctx) {
			<-s.slow
		}
		return false
	}
}

// release returns a slot that acquire got for the same context.
func (s slots) release(ctx context.Context) {
	<-s.all
	if isSlow(ctx) {
		<-s.slow
	}
}
