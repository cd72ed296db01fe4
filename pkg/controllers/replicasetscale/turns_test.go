package replicasetscale

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns(1)
		running, ended := 0, 0
		for range 3 {
			go func() {
				end, err := turns.take(t.Context(), "workload")
				if err != nil {
					t.Error(err)
					return
				}
				defer end()
				if running++; running > 1 {
					t.Error("two callers have a turn")
				}
				time.Sleep(time.Second)
				running--
				ended++
			}()
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if ended != 3 {
			t.Errorf("%d turns have ended, want 3", ended)
		}
	})
}

// TestTakesNoTurnAfterTheEnd has a worker that waits while its manager ends.
func TestTakesNoTurnAfterTheEnd(t *testing.T) {
	turns := newTurns(1)
	if _, err := turns.take(t.Context(), "workload"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := turns.take(ctx, "workload"); err == nil {
		t.Error("a caller got a turn that another has")
	}
}
