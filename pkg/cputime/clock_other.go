//go:build !linux

package cputime

import "time"

// clock is a time of the monotonic clock, because the system has no clocks of threads.
type clock time.Time

func ownClock() clock { return clock(time.Now()) }

func (c clock) now() time.Duration { return time.Since(time.Time(c)) }
