package world_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podops-dev/podops/test/world"
)

// stuck is the time of the machine after which a schedule counts as stuck. Most take less than a second.
const stuck = 3 * time.Minute

// play plays a schedule in a bubble of its own. A bubble that fails would fail its parent, too, so verdicts are values.
func play(t *testing.T, s world.Schedule) world.Verdict {
	t.Helper()
	watchdog := time.AfterFunc(stuck, func() {
		stacks := make([]byte, 8<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		fmt.Fprintf(os.Stderr, "stuck for %s: %s\n%s\n", stuck, s, stacks)
		os.Exit(3)
	})
	defer watchdog.Stop()
	var verdict world.Verdict
	synctest.Test(t, func(t *testing.T) { verdict = fixture.Play(context.Background(), s) })
	return verdict
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
