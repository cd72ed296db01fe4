//go:build defects

package world_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/podops-dev/podops/test/world"
)

// TestDefect plays the stories, and then the schedules of seeds, until one fails: the command defects builds it with the
// tag defects and a defect in PodOps. It fails if every schedule passes.
func TestDefect(t *testing.T) {
	played := 0
	for _, s := range stories() {
		if s.known {
			continue
		}
		played++
		if problems := s.problems(play(t, s.schedule())); len(problems) > 0 {
			report(s.name, problems[0], played)
			return
		}
	}
	for n := *from; n < *from+uint64(*seeds); n++ {
		played++
		verdict := play(t, world.Generate(n))
		if failing := verdict.Laws(); len(failing) > 0 {
			report(fmt.Sprintf("seed %d", n), failing[0], played)
			return
		}
	}
	t.Errorf("%d schedules pass", played)
}

// report prints the row of a table: the law, or the number of a story, that failed, the schedule, and how many were played.
func report(schedule, problem string, played int) {
	law, _, _ := strings.Cut(problem, ":")
	fmt.Printf("found: | %s | %s | %d |\n", law, schedule, played)
}
