package operator

import (
	"context"
	"errors"
	"runtime"
	"testing"
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
