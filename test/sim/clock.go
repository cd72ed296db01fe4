package sim

import "time"

// Epoch is the time at which every simulation starts.
var Epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Clock is a clock that only Step changes. Its zero value is not valid: use NewClock.
type Clock struct{ now time.Time }

// NewClock returns a clock at Epoch.
func NewClock() *Clock { return &Clock{now: Epoch} }

// Now returns the current time.
func (c *Clock) Now() time.Time { return c.now }

// Step moves the clock by d, which may be negative: the time of day may be set back.
func (c *Clock) Step(d time.Duration) { c.now = c.now.Add(d) }
