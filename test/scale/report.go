package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// The goals.
const (
	mostKiBPerPod  = 25
	mostMiB        = 320
	mostMiBPods    = 10000
	mostCPU        = 4 * time.Millisecond
	mostRequests   = 5.2
	mostCPUGrowth  = 1.3 // a busy machine may add as much
	mostCallGrowth = 1.1

	// The delay of a lifecycle alone.
	mostMedian = 40 * time.Millisecond
	mostDelay  = 100 * time.Millisecond
)

func mebibytes(bytes int64) string { return fmt.Sprintf("%.0f", float64(bytes)/(1<<20)) }

// perPod is the resident memory, in KiB, of each further pod.
func perPod(few, many figures) float64 {
	return float64(many.resident()-few.resident()) / (1 << 10) / float64(many.pods-few.pods)
}

// printFigures prints one line for each number of pods, and the requests.
func printFigures(out io.Writer, measured []figures) {
	if len(measured) == 0 {
		return
	}
	fmt.Fprintf(out, "\nMemory of the manager in MiB, resident at rest: after the growth, of a new manager, and after lifecycles.\n"+
		"Heap and peak after lifecycles. KiB: resident for each further pod, of the largest of the three.\n")
	fmt.Fprintf(out, "%8s %8s %8s %8s %8s %8s %8s\n", "pods", "grown", "new", "worked", "heap", "peak", "KiB/pod")
	for i, at := range measured {
		each := "-"
		if i > 0 {
			each = fmt.Sprintf("%.1f", perPod(measured[i-1], at))
		}
		fmt.Fprintf(out, "%8d %8s %8s %8s %8s %8s %8s\n", at.pods, mebibytes(at.grown.resident), mebibytes(at.started.resident),
			mebibytes(at.worked.resident), mebibytes(at.worked.heap), mebibytes(at.worked.peak), each)
	}
	fmt.Fprintf(out, "\nLifecycles: how many a second, and for each of them the processor time and the API requests of the manager.\n"+
		"Idle: processor time of the manager for a second at rest. p50, p99: milliseconds until a pod that is alone may be operated on.\n")
	fmt.Fprintf(out, "%8s %8s %8s %8s %8s %8s %8s\n", "pods", "rate", "CPU ms", "idle ms", "requests", "p50", "p99")
	names := map[string]bool{}
	for _, at := range measured {
		fmt.Fprintf(out, "%8d %8.1f %8.2f %8.2f %8.2f %8.1f %8.1f\n", at.pods, at.rate, milliseconds(at.cpu), milliseconds(at.idle), at.total(),
			milliseconds(at.delay(50)), milliseconds(at.delay(99)))
		for name := range at.requests {
			names[name] = true
		}
	}
	fmt.Fprintf(out, "\nRequests for a lifecycle, by verb and resource.\n%-50s", "pods")
	for _, at := range measured {
		fmt.Fprintf(out, " %8d", at.pods)
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		fmt.Fprintf(out, "\n%-50s", name)
		for _, at := range measured {
			fmt.Fprintf(out, " %8.2f", at.requests[name])
		}
	}
	fmt.Fprintln(out)
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// goal is a bound and whether it holds.
type goal struct {
	what, figure string
	holds        bool
}

// goals compares the figures with the bounds.
func goals(measured []figures) []goal {
	if len(measured) == 0 {
		return nil
	}
	first, last := measured[0], measured[len(measured)-1]
	var all []goal
	add := func(what string, value, bound float64) {
		all = append(all, goal{what: what, figure: fmt.Sprintf("%.2f", value), holds: value <= bound})
	}
	if last.pods > first.pods {
		add(fmt.Sprintf("KiB of resident memory for each further pod <= %d", mostKiBPerPod), perPod(first, last), mostKiBPerPod)
	}
	for _, at := range measured {
		if at.pods == mostMiBPods {
			add(fmt.Sprintf("MiB of resident memory at %d pods <= %d", at.pods, mostMiB), float64(at.resident())/(1<<20), mostMiB)
		}
	}
	for _, at := range measured {
		add(fmt.Sprintf("CPU ms for a lifecycle at %d pods <= %.0f", at.pods, milliseconds(mostCPU)), milliseconds(at.cpu), milliseconds(mostCPU))
		add(fmt.Sprintf("requests for a lifecycle at %d pods <= %.1f", at.pods, mostRequests), at.total(), mostRequests)
		add(fmt.Sprintf("p50 ms alone at %d pods <= %.0f", at.pods, milliseconds(mostMedian)), milliseconds(at.delay(50)), milliseconds(mostMedian))
		add(fmt.Sprintf("p99 ms alone at %d pods <= %.0f", at.pods, milliseconds(mostDelay)), milliseconds(at.delay(99)), milliseconds(mostDelay))
	}
	if last.pods > first.pods {
		add(fmt.Sprintf("CPU at %d pods / at %d <= %.1f", last.pods, first.pods, mostCPUGrowth), float64(last.cpu)/float64(first.cpu), mostCPUGrowth)
		add(fmt.Sprintf("requests at %d pods / at %d <= %.1f", last.pods, first.pods, mostCallGrowth), last.total()/first.total(), mostCallGrowth)
	}
	return all
}

// printGoals prints the goals and returns how many are missed.
func printGoals(out io.Writer, all []goal) (missed int) {
	fmt.Fprintln(out, "\nGoals.")
	for _, g := range all {
		holds := "yes"
		if !g.holds {
			holds, missed = "NO", missed+1
		}
		fmt.Fprintf(out, "%-60s %10s  %s\n", strings.TrimSpace(g.what), g.figure, holds)
	}
	return missed
}
