package remote

import "time"

// Breaker says when a host is left alone. Zero values stand for the defaults.
type Breaker struct {
	// Failures in a row after which it opens. Default: 5.
	Failures int

	// Pause is how long it stays open the first time; it doubles each time that the call
	// that tries the host again fails, up to MaxPause. Defaults: 10 s and 2 min.
	Pause    time.Duration
	MaxPause time.Duration
}

func (b Breaker) withDefaults() Breaker {
	if b.Failures <= 0 {
		b.Failures = 5
	}
	if b.Pause <= 0 {
		b.Pause = 10 * time.Second
	}
	if b.MaxPause < b.Pause {
		b.MaxPause = max(b.Pause, 2*time.Minute)
	}
	return b
}

// door is what the breaker of a host lets through.
type door int

const (
	// doorOpen: calls go through; the breaker is closed.
	doorOpen door = iota

	// doorAjar: one call goes through, to try.
	doorAjar

	// doorShut: no call goes through.
	doorShut
)

// breaker of one host. It has no clock and no lock of its own.
type breaker struct {
	options  Breaker
	failures int

	// pause is 0 while the breaker is closed; until is when a call may try the host.
	pause time.Duration
	until time.Time

	// trying: that call is under way.
	trying bool
}

// door says what goes through, and when doorShut, how long to wait.
func (b *breaker) door(now time.Time) (door, time.Duration) {
	switch {
	case b.pause == 0:
		return doorOpen, 0
	case now.Before(b.until):
		return doorShut, b.until.Sub(now)
	case b.trying:
		return doorShut, time.Second
	default:
		return doorAjar, 0
	}
}

// ended takes note of how a call ended; tried says that it was the one to try the host.
func (b *breaker) ended(health health, tried bool, now time.Time) {
	if tried {
		b.trying = false
	}
	switch health {
	case healthAnswered:
		*b = breaker{options: b.options}
	case healthFailed:
		b.failures++
		// Calls that were under way when it opened say nothing new.
		if tried || b.pause == 0 && b.failures >= b.options.Failures {
			b.pause = min(max(b.pause*2, b.options.Pause), b.options.MaxPause)
			b.until = now.Add(b.pause)
		}
	case healthUnknown:
	}
}

// fresh: nothing is held against the host.
func (b *breaker) fresh() bool { return b.failures == 0 && b.pause == 0 }

// health is what the end of a call says about its host.
type health int

const (
	// healthUnknown: the reason lies with the rule or with PodOps. A wrong caBundle in one
	// rule must not keep others from the service.
	healthUnknown health = iota

	// healthAnswered: the host answered, whatever it said.
	healthAnswered

	// healthFailed: the host could not be reached, or let the call hang.
	healthFailed
)

func healthOf(failure *Failure) health {
	if failure == nil {
		return healthAnswered
	}
	switch failure.Class {
	case ClassHTTPStatus, ClassBadResponse, ClassRedirectRefused, ClassTooLarge:
		return healthAnswered
	case ClassRefused, ClassTimeout, ClassDNS, ClassConnectionBroken:
		return healthFailed
	default:
		return healthUnknown
	}
}
