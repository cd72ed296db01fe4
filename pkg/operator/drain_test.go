package operator

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func TestReadinessEndsBeforeTheManager(t *testing.T) {
	ctx, signal := context.WithCancel(t.Context())
	clk := clocktesting.NewFakeClock(time.Unix(0, 0))
	d := newDrain(ctx, 10*time.Second, clk)
	if err := d.Ready(nil); err != nil || d.begun() {
		t.Errorf("before the signal: ready %v, begun %t", err, d.begun())
	}
	signal()
	if err := d.Ready(nil); !errors.Is(err, errDraining) || !d.begun() {
		t.Errorf("after the signal: ready %v, begun %t", err, d.begun())
	}
	for !clk.HasWaiters() {
		runtime.Gosched()
	}
	clk.Step(9 * time.Second)
	if !clk.HasWaiters() || d.ended.Err() != nil {
		t.Error("the manager ends before the delay does")
	}
	clk.Step(time.Second)
	<-d.ended.Done()
}

func TestWithoutADelayTheManagerEndsAtOnce(t *testing.T) {
	ctx, signal := context.WithCancel(t.Context())
	d := newDrain(ctx, 0, clocktesting.NewFakeClock(time.Unix(0, 0)))
	signal()
	<-d.ended.Done()
}

// TestAManagerThatDoesNotEndIsLeft shows that the end of a manager is bounded: without rights to fill its caches,
// a manager of controller-runtime does not end by its context.
func TestAManagerThatDoesNotEndIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, signal := context.WithCancel(t.Context())
		d := newDrain(ctx, 0, clocktesting.NewFakeClock(time.Unix(0, 0)))
		filled := make(chan struct{})
		signal()
		begin := time.Now()
		err := d.run(func(context.Context) error { <-filled; return nil })
		if !errors.Is(err, errDidNotEnd) || time.Since(begin) != endPatience {
			t.Errorf("run: %v after %v, want %v after %v", err, time.Since(begin), errDidNotEnd, endPatience)
		}
		close(filled)
	})
}

func TestTheErrorOfAManagerIsReturned(t *testing.T) {
	d := newDrain(t.Context(), 0, clocktesting.NewFakeClock(time.Unix(0, 0)))
	broken := errors.New("lease lost")
	if err := d.run(func(context.Context) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("run: %v, want %v", err, broken)
	}
	if err := d.run(func(context.Context) error { return nil }); err != nil {
		t.Errorf("run: %v, want no error", err)
	}
}
