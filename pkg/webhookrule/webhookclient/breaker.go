package webhookclient

import "time"

// Breaker configures circuit breakers. Zero values select the defaults.
type Breaker struct {
	// Failures is the number of consecutive failures that opens the breaker. Default: 5.
	Failures int

	// Pause is the time for which it stays open the first time; it doubles each time that the probe
	// fails, up to MaxPause. Defaults: 10 s and 2 min.
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

// state of a circuit breaker.
type state int

const (
	// stateClosed lets calls through.
	stateClosed state = iota

	// stateHalfOpen lets one call through, the probe.
	stateHalfOpen

	// stateOpen lets no call through.
	stateOpen
)

// breaker is the circuit breaker of one target. It has no clock and no lock of its own.
type breaker struct {
	options  Breaker
	failures int

	// pause is 0 while the breaker is closed; until is the time at which it becomes half-open.
	pause time.Duration
	until time.Time

	// probing is true while the probe is under way.
	probing bool

	// answered is true if the last call with evidence about the target was answered.
	answered bool
}

// state returns the state at a time and, in stateOpen, the minimum time until it changes.
func (b *breaker) state(now time.Time) (state, time.Duration) {
	switch {
	case b.pause == 0:
		return stateClosed, 0
	case now.Before(b.until):
		return stateOpen, b.until.Sub(now)
	case b.probing:
		return stateOpen, time.Second
	default:
		return stateHalfOpen, 0
	}
}

// ended counts the end of a call; probe marks the call that stateHalfOpen let through.
func (b *breaker) ended(health health, probe bool, now time.Time) {
	if probe {
		b.probing = false
	}
	switch health {
	case healthAnswered:
		*b = breaker{options: b.options, answered: true}
	case healthFailed:
		b.failures++
		b.answered = false
		// Calls that were in flight when the breaker opened do not prolong the pause.
		if probe || b.pause == 0 && b.failures >= b.options.Failures {
			b.pause = min(max(b.pause*2, b.options.Pause), b.options.MaxPause)
			b.until = now.Add(b.pause)
		}
	case healthUnknown:
	}
}

// fresh reports whether there is no evidence about the target.
func (b *breaker) fresh() bool { return b.failures == 0 && b.pause == 0 && !b.answered }

// health is the evidence that the end of a call gives about its target.
type health int

const (
	// healthUnknown means that the rule or PodOps is the cause.
	healthUnknown health = iota

	// healthAnswered means that the service answered, with any content.
	healthAnswered

	// healthFailed means that the service could not be reached, or did not answer in time.
	healthFailed
)

func failureHealth(failure *Failure) health {
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
