package fairshare_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podops-dev/podops/pkg/runtime/fairshare"
)

// work holds a slot for a while, and calls had once it has one.
func work(t *testing.T, slots *fairshare.Slots, owner string, takes time.Duration, had func()) {
	t.Helper()
	release, err := slots.Acquire(t.Context(), owner)
	if err != nil {
		t.Errorf("acquiring a slot for %s: %v", owner, err)
		return
	}
	time.Sleep(takes)
	release()
	had()
}

// TestAnOwnerWithMuchWorkWaits queues 100 calls of one owner before the only one of another owner,
// which is next nevertheless.
func TestAnOwnerWithMuchWorkWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := fairshare.NewSlots(fairshare.SlotOptions{Slots: 2})
		var done atomic.Int32
		for range 100 {
			go work(t, slots, "busy", time.Second, func() { done.Add(1) })
		}
		synctest.Wait()
		start := time.Now()
		work(t, slots, "quiet", time.Second, func() {})
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("the quiet owner was done after %s, want the next free slot", took)
		}
		time.Sleep(time.Hour)
		if done.Load() != 100 {
			t.Errorf("%d of 100 pieces were done", done.Load())
		}
	})
}

func TestEachBoundsOneOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := fairshare.NewSlots(fairshare.SlotOptions{Slots: 2, Each: 1})
		for range 5 {
			go work(t, slots, "busy", time.Second, func() {})
		}
		synctest.Wait()
		start := time.Now()
		work(t, slots, "quiet", time.Second, func() {})
		if took := time.Since(start); took != time.Second {
			t.Errorf("the quiet owner was done after %s, want the slot that the busy one may not have", took)
		}
		time.Sleep(time.Minute)
	})
}

func TestAFullQueueIsAnErrorAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := fairshare.NewSlots(fairshare.SlotOptions{Slots: 1, Waiting: 1})
		release, err := slots.Acquire(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		waits := make(chan error, 1)
		go func() {
			_, err := slots.Acquire(ctx, "a")
			waits <- err
		}()
		synctest.Wait()
		if _, err := slots.Acquire(t.Context(), "a"); !errors.Is(err, fairshare.ErrFull) {
			t.Errorf("got %v, want ErrFull", err)
		}
		cancel()
		if err := <-waits; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want the error of the context", err)
		}
		release()
		if release, err = slots.Acquire(t.Context(), "b"); err != nil {
			t.Fatalf("the slot is not free again: %v", err)
		}
		release()
	})
}
