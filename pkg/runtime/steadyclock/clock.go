// Package steadyclock provides a clock that does not jump.
//
// The controllers compare their time with times that they have written to objects before:
// when a call began, when a permit was given. If the clock of the machine is set forward by an
// hour in between, every such wait ends at once; if it is set back, no such wait ends for an
// hour. A Clock starts with the time of the machine and advances with its monotonic clock.
// When the clock of the machine is set, a Clock follows it slowly, by at most one part in
// twenty of the elapsed time, so that no wait is wrong by more than that.
//
// A new process starts with the present time of the machine.
package steadyclock

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// slew is the part of the elapsed time by which a Clock may be faster or slower than the
	// monotonic clock while it follows the clock of the machine.
	slew = 20

	// jump is by how much the clock of the machine must be set to be reported. Smaller changes
	// are adjustments of a time service.
	jump = time.Second
)

// Reading contains the clocks of the machine at one moment.
type Reading struct {
	// Wall is the time of day, without a monotonic reading.
	Wall time.Time

	// Elapsed is the monotonic time since some fixed moment.
	Elapsed time.Duration
}

// Clock is a clock that does not jump. Its timers are the timers of the machine, which are
// monotonic anyway. It is safe for concurrent use.
type Clock struct {
	clock.RealClock

	read   func() Reading
	jumped func(by time.Duration)

	mu   sync.Mutex
	last Reading
	now  time.Time
}

// New returns a Clock that starts with the time of the machine. jumped is called when the
// clock of the machine has been set, with the difference, negative when it was set back; it is
// called with the Clock locked and must not use it.
func New(jumped func(by time.Duration)) *Clock {
	began := time.Now()
	return start(func() Reading {
		now := time.Now()
		return Reading{Wall: now.Round(0), Elapsed: now.Sub(began)}
	}, jumped)
}

func start(read func() Reading, jumped func(by time.Duration)) *Clock {
	first := read()
	return &Clock{read: read, jumped: jumped, last: first, now: first.Wall}
}

// Now returns the time, which never decreases.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := c.read()
	passed := next.Elapsed - c.last.Elapsed
	if set := next.Wall.Sub(c.last.Wall) - passed; set.Abs() >= jump {
		c.jumped(set)
	}
	c.now, c.last = advanced(c.now, passed, next.Wall), next
	return c.now
}

// Since returns the time that has passed since then.
func (c *Clock) Since(then time.Time) time.Duration { return c.Now().Sub(then) }

// advanced returns the time after some has elapsed: nearer to the time of the machine by at most
// one part in twenty of that.
func advanced(now time.Time, passed time.Duration, wall time.Time) time.Time {
	next := now.Add(passed)
	most := passed / slew
	return next.Add(min(max(wall.Sub(next), -most), most))
}
