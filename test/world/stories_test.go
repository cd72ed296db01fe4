package world_test

import (
	"fmt"
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

	// granted are what clients that count were granted.
	granted map[string]int

	// known is true for a defect of this tree. A story of a known defect that passes fails.
	known bool
}

const anyNumber = -1

func (s story) schedule() world.Schedule {
	schedule := world.Schedule{
		Seed: 7, Nodes: s.nodes, Managers: s.managers, Workloads: []world.Workload{s.workload}, Acts: s.acts, Late: s.late, Length: s.length,
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
	for act, want := range s.granted {
		if n := verdict.Granted[act]; n != want {
			all = append(all, fmt.Sprintf("%s: %d were granted, want %d", act, n, want))
		}
	}
	return all
}

func TestStory(t *testing.T) {
	for _, s := range stories() {
		t.Run(s.name, func(t *testing.T) {
			if testing.Short() && s.known {
				t.Skip("a known defect, which make test-world plays")
			}
			schedule := s.schedule()
			verdict := play(t, schedule)
			problems := s.problems(verdict)
			switch {
			case *full:
				t.Log(describe(schedule, verdict))
			case len(problems) > 0 && !s.known:
				t.Log(describe(schedule, verdict))
			}
			t.Logf("%d writes in %s: %v", verdict.Writes, verdict.Took.Truncate(time.Second), problems)
			if s.known && len(problems) == 0 {
				t.Error("the story of a known defect passes: clear known")
			}
			if !s.known && len(problems) > 0 {
				t.Errorf("%v", problems)
			}
		})
	}
}
