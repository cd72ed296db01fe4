package world_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podops-dev/podops/test/world"
)

const (
	// stuck is the time of the machine after which a schedule that computes nothing counts as stuck: a mutex that is held
	// across a wait stops the time of a bubble. Most schedules take a few seconds.
	stuck = 3 * time.Minute

	// idle is the processor time that a stuck process uses in that time, at most.
	idle = 200 * time.Millisecond
)

// play plays a schedule in a bubble of its own. A bubble that fails would fail its parent, too, so verdicts are values.
func play(t *testing.T, s world.Schedule) world.Verdict {
	t.Helper()
	defer watch(s)()
	var verdict world.Verdict
	synctest.Test(t, func(t *testing.T) { verdict = fixture.Play(context.Background(), s) })
	return verdict
}

// watch ends the process if the schedule is stuck, until the returned function is called.
func watch(s world.Schedule) (stop func()) {
	ended := make(chan struct{})
	go func() {
		for used := processorTime(); ; used = processorTime() {
			select {
			case <-ended:
				return
			case <-time.After(stuck):
			}
			if processorTime()-used < idle {
				stacks := make([]byte, 8<<20)
				stacks = stacks[:runtime.Stack(stacks, true)]
				fmt.Fprintf(os.Stderr, "stuck for %s: %s\n%s\n", stuck, s, stacks)
				os.Exit(3)
			}
		}
	}()
	return func() { close(ended) }
}

// processorTime returns the processor time that this process has used.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// describe returns what a reader needs of a schedule that failed.
func describe(s world.Schedule, verdict world.Verdict) string {
	var lines []string
	for _, violation := range verdict.Violations {
		lines = append(lines, violation.String())
	}
	lines = append(lines, s.String())
	return strings.Join(append(lines, verdict.Trace...), "\n")
}
