// Package await waits in tests. Every wait is bounded, so that a test fails at the wait that does not end.
package await

import (
	"testing"
	"time"
)

// patience bounds a wait for a change that is immediate on an idle machine.
const patience = 2 * time.Minute

// Until waits until a condition holds.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// Receive returns the next value of a channel, or the zero value once the channel is closed.
func Receive[T any](t testing.TB, what string, channel <-chan T) T {
	t.Helper()
	select {
	case value := <-channel:
		return value
	case <-time.After(patience):
		t.Fatalf("not within %s: %s", patience, what)
		panic("unreachable")
	}
}
