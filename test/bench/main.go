// Command bench measures the policy engine and prints tables: the cost of a round over
// sizes of workloads, compared with the same rules in plain Go; the cost of compiling; and
// whether the goals P1 to P12 (docs/design/engine.md) hold. It takes some minutes.
//
//	go run ./test/bench          # measure and print
//	go run ./test/bench -check   # fail when a goal is missed by more than 30 %
package main

import (
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/podops-dev/podops/pkg/engine/opa/sandbox"
)

func main() {
	if sandbox.IsChild(os.Args) {
		os.Exit(sandbox.Main(os.Stdin, os.Stdout))
	}
	check := flag.Bool("check", false, "exit with 1 when a goal is missed by more than 30 %")
	samples := flag.Int("samples", 9, "samples of which the median is taken")
	flag.Parse()
	failed, err := run(os.Stdout, os.Stderr, *samples)
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	if *check && failed > 0 {
		_, _ = fmt.Fprintf(os.Stderr, "bench: %d goals are missed by more than 30 %%\n", failed)
		os.Exit(1)
	}
}

// run measures everything, prints it, and returns how many goals are missed by more than
// slack.
func run(out, progress io.Writer, samples int) (failed int, err error) {
	m := measured{}
	if m.agreement, err = compare(); err != nil {
		return 0, fmt.Errorf("comparing verdicts: %w", err)
	}
	if m.grid, err = measureGrid(samples, progress); err != nil {
		return 0, fmt.Errorf("measuring rounds: %w", err)
	}
	if m.growth, err = measureGrowth(samples, progress); err != nil {
		return 0, fmt.Errorf("measuring growth: %w", err)
	}
	if m.compiling, err = measureCompiling(samples, progress); err != nil {
		return 0, fmt.Errorf("measuring the compiler: %w", err)
	}
	if m.path, err = measurePath(samples, progress); err != nil {
		return 0, fmt.Errorf("measuring the whole path: %w", err)
	}
	if m.hostile, err = measureHostile(progress); err != nil {
		return 0, fmt.Errorf("measuring hostile modules: %w", err)
	}
	printRounds(out, m.grid)
	printPath(out, m.path)
	printCompiling(out, m.compiling)
	printHostile(out, m.hostile)
	goals := evaluateGoals(m)
	printGoals(out, goals)
	for _, g := range goals {
		if !g.holds && !g.close {
			failed++
		}
	}
	return failed, nil
}

// measured holds all inputs of the goals.
type measured struct {
	agreement agreement
	grid      grid
	growth    growth
	compiling compiling
	path      path
	hostile   hostile
}
