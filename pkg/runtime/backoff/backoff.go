// Package backoff computes delays that double with each failure, and the shorter of two delays. It is pure.
package backoff

import "time"

// Delay returns first doubled a number of times, and at most limit. It doubles zero times for a
// negative number.
func Delay(first time.Duration, times int, limit time.Duration) time.Duration {
	delay := first
	for ; times > 0 && delay < limit; times-- {
		delay *= 2
	}
	return min(delay, limit)
}

// MinDelay returns the shorter of two delays; a delay that is not above zero is ignored.
func MinDelay(a, b time.Duration) time.Duration {
	switch {
	case b <= 0:
		return a
	case a <= 0:
		return b
	default:
		return min(a, b)
	}
}
