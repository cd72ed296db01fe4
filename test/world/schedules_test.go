package world_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/podops-dev/podops/test/world"
)

// shortSeeds is the number of schedules that are part of make test-world-share.
const shortSeeds = 4

// TestSchedules plays the schedules of many seeds. A seed that fails is shrunk and printed; -seed plays it again.
func TestSchedules(t *testing.T) {
	if *seed != 0 {
		s := world.Generate(*seed)
		verdict := play(t, s)
		t.Log(describe(s, verdict))
		if failing := unknown(verdict); len(failing) > 0 {
			t.Errorf("laws: %v", failing)
		}
		return
	}
	count := *seeds
	if testing.Short() {
		count = min(count, shortSeeds)
	}
	began, broken := time.Now(), map[string][]uint64{}
	for n := *from; n < *from+uint64(count); n++ {
		s := world.Generate(n)
		verdict := play(t, s)
		if *full {
			t.Log(describe(s, verdict))
		}
		for _, law := range verdict.Laws() {
			broken[law] = append(broken[law], n)
		}
		failing := unknown(verdict)
		if len(failing) == 0 {
			continue
		}
		t.Errorf("seed %d: %v; go test -C test/world -run Schedules -seed %d", n, failing, n)
		if *plays > 0 {
			law, smallest := failing[0], verdict
			s = world.Shrink(s, func(candidate world.Schedule) bool {
				again := play(t, candidate)
				if again.Broke(law) {
					smallest = again
				}
				return again.Broke(law)
			}, *plays)
			t.Log("shrunk:\n" + describe(s, smallest))
		}
	}
	took := time.Since(began)
	t.Logf("%d schedules in %s, %.0f a minute", count, took.Truncate(time.Second), float64(count)/took.Minutes())
	var lines []string
	for law, by := range broken {
		lines = append(lines, fmt.Sprintf("%s: %d of %d, seeds %v", law, len(by), count, by[:min(len(by), 12)]))
	}
	slices.Sort(lines)
	t.Log(strings.Join(lines, "\n"))
}

// unknown returns the laws that were broken and of which no defect is known.
func unknown(verdict world.Verdict) []string {
	return slices.DeleteFunc(verdict.Laws(), func(law string) bool { return slices.Contains(knownLaws(), law) })
}

// knownLaws returns the laws that known defects break in schedules of seeds; the stories that are known have the
// defects. A new defect that breaks the same law hides behind them.
func knownLaws() []string {
	return []string{"and then", "in vain", "number", "owners", "refused", "remains", "requests", "serves", "true", "wanted"}
}
