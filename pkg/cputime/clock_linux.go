package cputime

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadClock marks the id of a clock that counts the CPU time of one thread
// (CPUCLOCK_PERTHREAD_MASK and CPUCLOCK_SCHED of the kernel). The other bits are the
// inverted id of the thread.
const threadClock = 4 | 2

// clock is the clock of a thread. Other threads of the process may read it too.
type clock int32

func ownClock() clock { return clock(^unix.Gettid()<<3 | threadClock) }

// now returns the CPU time of the thread, 0 when the thread has ended.
func (c clock) now() time.Duration {
	var at unix.Timespec
	if unix.ClockGettime(int32(c), &at) != nil {
		return 0
	}
	return time.Duration(at.Nano())
}
