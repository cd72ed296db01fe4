package webhookclient

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// wantState fails unless the breaker is in a state, for a time.
func wantState(t *testing.T, b *breaker, now time.Time, want state, wait time.Duration) {
	t.Helper()
	if got, gotWait := b.state(now); got != want || gotWait != wait {
		t.Fatalf("state %v for %v, want %v for %v", got, gotWait, want, wait)
	}
}

func TestABreakerOpensAfterFiveFailuresInARow(t *testing.T) {
	b := &breaker{options: Breaker{}.withDefaults()}
	for range 4 {
		b.ended(healthFailed, false, noon)
	}
	b.ended(healthUnknown, false, noon)
	wantState(t, b, noon, stateClosed, 0)
	b.ended(healthAnswered, false, noon)
	for range 4 {
		b.ended(healthFailed, false, noon)
	}
	wantState(t, b, noon, stateClosed, 0)
	b.ended(healthFailed, false, noon)
	wantState(t, b, noon, stateOpen, 10*time.Second)
}

func TestABreakerProbesWithOneCallAndPausesLongerEachTime(t *testing.T) {
	b := &breaker{options: Breaker{}.withDefaults()}
	for range 5 {
		b.ended(healthFailed, false, noon)
	}
	// Calls that were in flight when it opened do not prolong the pause.
	b.ended(healthFailed, false, noon.Add(9*time.Second))
	now := noon
	for _, pause := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 2 * time.Minute, 2 * time.Minute} {
		wantState(t, b, now.Add(pause-1), stateOpen, 1)
		now = now.Add(pause)
		wantState(t, b, now, stateHalfOpen, 0)
		b.probing = true
		wantState(t, b, now, stateOpen, time.Second)
		b.ended(healthFailed, true, now)
	}
	now = now.Add(2 * time.Minute)
	b.probing = true
	b.ended(healthUnknown, true, now)
	wantState(t, b, now, stateHalfOpen, 0)
	b.probing = true
	b.ended(healthAnswered, true, now)
	wantState(t, b, now, stateClosed, 0)
	if b.failures != 0 || b.pause != 0 {
		t.Error("failures are still held against a host that answered")
	}
}

func TestHealthOfTheHostByFailure(t *testing.T) {
	for class, want := range map[Class]health{
		ClassRefused: healthFailed, ClassTimeout: healthFailed, ClassDNS: healthFailed, ClassConnectionBroken: healthFailed,
		ClassHTTPStatus: healthAnswered, ClassBadResponse: healthAnswered, ClassRedirectRefused: healthAnswered, ClassTooLarge: healthAnswered,
		ClassTLSUntrusted: healthUnknown, ClassTLSExpired: healthUnknown, ClassTLSNameMismatch: healthUnknown, ClassTLS: healthUnknown,
		ClassAddressForbidden: healthUnknown, ClassConfiguration: healthUnknown, ClassSecret: healthUnknown, ClassCanceled: healthUnknown,
		ClassInternal: healthUnknown,
	} {
		if got := failureHealth(&Failure{Class: class}); got != want {
			t.Errorf("%s: %v, want %v", class, got, want)
		}
	}
	if failureHealth(nil) != healthAnswered {
		t.Error("an answer is not one")
	}
}

func TestABreakerAlwaysClosesAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, now := &breaker{options: Breaker{}.withDefaults()}, noon
		for range rapid.IntRange(0, 50).Draw(t, "calls") {
			now = now.Add(time.Duration(rapid.IntRange(0, 200).Draw(t, "seconds")) * time.Second)
			at, _ := b.state(now)
			if at == stateOpen {
				continue
			}
			b.probing = at == stateHalfOpen
			b.ended(rapid.SampledFrom([]health{healthUnknown, healthAnswered, healthFailed}).Draw(t, "health"), at == stateHalfOpen, now)
		}
		if at, _ := b.state(now.Add(2 * time.Minute)); at == stateOpen {
			t.Errorf("shut after the longest pause: %+v", b)
		}
	})
}
