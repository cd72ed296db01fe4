package webhookserver

import (
	"context"
	"errors"
	"testing"
)

func isReady(w *waiter) bool {
	select {
	case <-w.ready:
		return true
	default:
		return false
	}
}

func enter(t *testing.T, l *lane, n int) *waiter {
	t.Helper()
	w, err := l.enter(source(n))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestAFreeSlotGoesToTheSourceWithTheFewestReviews(t *testing.T) {
	l := newLane(2, 10)
	flood := []*waiter{enter(t, l, 1), enter(t, l, 1), enter(t, l, 1), enter(t, l, 1)}
	other := enter(t, l, 2)
	if !isReady(flood[0]) || !isReady(flood[1]) || isReady(flood[2]) || isReady(other) {
		t.Fatal("want the first two to run, and the others to wait")
	}
	l.leave(source(1))
	if isReady(flood[2]) || !isReady(other) {
		t.Error("the slot went to the source that has one already")
	}
	l.leave(source(1))
	if !isReady(flood[2]) || isReady(flood[3]) {
		t.Error("want the slot to go to the review that has waited longest")
	}
}

func TestALaneBoundsWaitingReviews(t *testing.T) {
	l := newLane(1, 2)
	enter(t, l, 1) // runs
	enter(t, l, 1)
	enter(t, l, 1)
	if _, err := l.enter(source(1)); !errors.Is(err, errBusy) {
		t.Errorf("a fourth: %v, want %v", err, errBusy)
	}
	enter(t, l, 2)
}

func TestAReviewThatGivesUpLeavesNothing(t *testing.T) {
	l := newLane(1, 2)
	enter(t, l, 1)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errTimeout)
	if err := l.acquire(ctx, source(2)); !errors.Is(err, errTimeout) {
		t.Errorf("got %v, want %v", err, errTimeout)
	}
	l.leave(source(1))
	if l.total != 0 || len(l.waiting) != 0 || len(l.running) != 0 || len(l.queued) != 0 {
		t.Errorf("left behind: %+v", l)
	}
}
