package world_test

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/podops-dev/podops/test/world"
)

// story is a schedule of which one law, or the numbers of its end, are the point.
type story struct {
	name string

	// nodes and managers are 3 and 1 by default.
	nodes, managers int
	workload        world.Workload
	acts            []world.Act
	late            []world.Act
	length          time.Duration

	// removed and left are the pods that were removed, and that are left, before everything is approved; -1 for any.
	removed, left int

	// off is the longest time for which a pod that could serve may be off traffic before it is back in service; 0 for any.
	off time.Duration

	// unguarded are the reasons of the events about pods that were removed past their rules; nil for any.
	unguarded []string

	// granted are what clients that count were granted.
	granted map[string]int

	// known is true for a defect of this tree, whose story make test-world-share leaves out. A story of a known defect that passes
	// fails.
	known bool

	// long is true for a story that takes much more of a processor than others: make test-world-share leaves it out.
	long bool
}

const anyNumber = -1

func (s story) schedule() world.Schedule {
	schedule := world.Schedule{
		Seed: 7, Nodes: s.nodes, Managers: s.managers, Workloads: []world.Workload{s.workload}, Acts: s.acts, Late: s.late, Length: s.length,
		Events: s.unguarded != nil,
	}
	if schedule.Nodes == 0 {
		schedule.Nodes = 3
	}
	if schedule.Managers == 0 {
		schedule.Managers = 1
	}
	return schedule
}

// problems returns everything that is wrong with a verdict.
func (s story) problems(verdict world.Verdict) []string {
	var all []string
	for _, violation := range verdict.Violations {
		all = append(all, violation.String())
	}
	if n := verdict.Removed[s.workload.Name]; s.removed != anyNumber && n != s.removed {
		all = append(all, fmt.Sprintf("%d pods were removed, want %d", n, s.removed))
	}
	if n := verdict.Left[s.workload.Name]; s.left != anyNumber && n != s.left {
		all = append(all, fmt.Sprintf("%d pods are left, want %d", n, s.left))
	}
	if off := verdict.OffTraffic[s.workload.Name]; s.off > 0 && off > s.off {
		all = append(all, fmt.Sprintf("a pod was off traffic for %s and then in service again, want at most %s", off, s.off))
	}
	if s.unguarded != nil && !slices.Equal(verdict.Unguarded, s.unguarded) {
		all = append(all, fmt.Sprintf("events about pods that were removed past their rules: %q, want %q", verdict.Unguarded, s.unguarded))
	}
	for act, want := range s.granted {
		if n := verdict.Granted[act]; n != want {
			all = append(all, fmt.Sprintf("%s: %d were granted, want %d", act, n, want))
		}
	}
	return all
}

// TestStory plays the stories. Several processes play them at once, unless their traces are printed.
func TestStory(t *testing.T) {
	if *processes > 1 && !*full {
		playParts(t)
		return
	}
	for i, s := range stories() {
		if i%*parts != *part || testing.Short() && (s.known || s.long) {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			schedule, used := s.schedule(), processorTime()
			verdict := play(t, schedule)
			used = processorTime() - used
			problems := s.problems(verdict)
			switch {
			case *full:
				t.Log(describe(schedule, verdict))
			case len(problems) > 0 && !s.known:
				t.Log(describe(schedule, verdict))
			}
			t.Logf("%d writes in %s, %s off traffic, %s of a processor: %v", verdict.Writes, verdict.Took.Truncate(time.Second),
				verdict.OffTraffic[s.workload.Name], used.Truncate(time.Millisecond), problems)
			if s.known && len(problems) == 0 {
				t.Error("the story of a known defect passes: clear known")
			}
			if !s.known && len(problems) > 0 {
				t.Errorf("%v", problems)
			}
		})
	}
}

// playParts plays the stories that the pattern of go test selects, each process a part of them.
func playParts(t *testing.T) {
	t.Helper()
	_, selected, _ := strings.Cut(flag.Lookup("test.run").Value.String(), "/")
	var running sync.WaitGroup
	for n := range *processes {
		running.Go(func() {
			out, used, err := inProcess(t, "-test.v", "-test.run=^TestStory$/"+selected, fmt.Sprintf("-test.short=%t", testing.Short()),
				fmt.Sprintf("-parts=%d", *processes), fmt.Sprintf("-part=%d", n))
			t.Logf("%s of a processor:\n%s", used.Truncate(time.Second), out)
			if err != nil {
				t.Errorf("part %d of %d: %v", n, *processes, err)
			}
		})
	}
	running.Wait()
}
