package operator

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestReadinessEndsBeforeTheManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, signal := context.WithCancel(t.Context())
		d := newDrain(ctx, 10*time.Second)
		if err := d.Ready(nil); err != nil || d.begun() {
			t.Errorf("before the signal: ready %v, begun %t", err, d.begun())
		}
		begin := time.Now()
		signal()
		if err := d.Ready(nil); !errors.Is(err, errDraining) || !d.begun() {
			t.Errorf("after the signal: ready %v, begun %t", err, d.begun())
		}
		<-d.ended.Done()
		if took := time.Since(begin); took != 10*time.Second {
			t.Errorf("the manager ends after %s, want the delay", took)
		}
	})
}

func TestWithoutADelayTheManagerEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, signal := context.WithCancel(t.Context())
		d := newDrain(ctx, 0)
		begin := time.Now()
		signal()
		<-d.ended.Done()
		if took := time.Since(begin); took != 0 {
			t.Errorf("the manager ends after %s", took)
		}
	})
}

// TestAManagerThatDoesNotEndIsLeft shows that the end of a manager is bounded: without rights to fill its caches,
// a manager of controller-runtime does not end by its context.
func TestAManagerThatDoesNotEndIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, signal := context.WithCancel(t.Context())
		d := newDrain(ctx, 0)
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
	d := newDrain(t.Context(), 0)
	broken := errors.New("lease lost")
	if err := d.run(func(context.Context) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("run: %v, want %v", err, broken)
	}
	if err := d.run(func(context.Context) error { return nil }); err != nil {
		t.Errorf("run: %v, want no error", err)
	}
}
