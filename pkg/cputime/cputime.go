// Package cputime measures the CPU time of one thread, so that a busy machine is not
// mistaken for an expensive computation.
package cputime

import "time"

// Stopwatch measures the CPU time that the thread of a goroutine has used since Start. On
// systems without clocks of threads it measures elapsed time.
type Stopwatch struct {
	clock clock
	began time.Duration
}

// Start returns a running Stopwatch. The calling goroutine must be locked to its thread
// (runtime.LockOSThread) until Used is read for the last time.
func Start() Stopwatch {
	c := ownClock()
	return Stopwatch{clock: c, began: c.now()}
}

// Used returns the CPU time since Start. Any goroutine may call it while the measured
// thread exists.
func (s Stopwatch) Used() time.Duration { return max(0, s.clock.now()-s.began) }
