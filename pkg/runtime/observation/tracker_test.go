package observation

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func TestStatesAreMeasuredFromTheFirstLook(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_700_000_000, 0))
	tracker := NewTracker(clock)
	for i, look := range []struct {
		after  time.Duration
		object string
		state  string
		want   time.Duration
	}{
		{0, "a", "Ready", 0},
		{time.Second, "a", "Ready", time.Second},
		{time.Second, "b", "Ready", 0},
		{time.Second, "a", "NotReady", 0},
		{time.Second, "a", "NotReady", time.Second},
		{0, "b", "Ready", 2 * time.Second},
		{time.Second, "a", "Ready", 0},
	} {
		clock.SetTime(clock.Now().Add(look.after))
		if got := tracker.Observe("u1", look.object, look.state); got != look.want {
			t.Errorf("look %d: observed for %s, want %s", i, got, look.want)
		}
	}
}

func TestAForgottenObservationBeginsAgain(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_700_000_000, 0))
	tracker := NewTracker(clock)
	tracker.Observe("u1", "readiness", "NotReady")
	clock.SetTime(clock.Now().Add(time.Minute))
	tracker.Forget("u1", "readiness")
	if got := tracker.Observe("u1", "readiness", "NotReady"); got != 0 {
		t.Errorf("observed for %s after it was forgotten", got)
	}
}

// TestUnobservedObjectsExpire shows that unobserved objects expire.
func TestUnobservedObjectsExpire(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_700_000_000, 0))
	tracker := NewTracker(clock)
	tracker.Observe("gone", "readiness", "NotReady")
	for range 4 {
		clock.SetTime(clock.Now().Add(idle / 2))
		tracker.Observe("stays", "readiness", "NotReady")
	}
	if got := tracker.Observe("stays", "readiness", "NotReady"); len(tracker.seen) != 1 || got < idle {
		t.Errorf("%d observations, the tested observation lasts %s", len(tracker.seen), got)
	}
}

// TestTheMonotonicClockCounts shows that a wall clock that is set changes nothing. The times of
// time.Now contain both readings, and Round drops the monotonic one.
func TestTheMonotonicClockCounts(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	tracker := NewTracker(clock)
	tracker.Observe("u1", "readiness", "NotReady")
	if at := tracker.seen[key{"u1", "readiness"}].since; at.String() == at.Round(0).String() {
		t.Errorf("the time %s has lost the reading of the monotonic clock", at)
	}
}
