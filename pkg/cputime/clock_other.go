//go:build !linux

package cputime

import "time"

// clock is a moment of the monotonic clock: there are no clocks of threads here.
type clock time.Time

func ownClock() clock { return clock(time.Now()) }

func (c clock) now() time.Duration { return time.Since(time.Time(c)) }
