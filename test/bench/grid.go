package main

import (
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/podops-dev/podops/pkg/engine/opa"
)

// The columns of the grid: an implementation, and the number of changed pods before each
// measured round: one, all that wait (cold), or none (idle).
const (
	scanOne   = "go-scan"
	scanCold  = "go-scan cold"
	incrOne   = "go-incr"
	incrCold  = "go-incr cold"
	incrIdle  = "go-incr idle"
	loopOne   = "go-loop"
	oldOne    = "quadratic"
	oursOne   = "podops"
	oursCold  = "podops cold"
	oursApart = "podops apart"
	oursIdle  = "podops idle"
)

func columns() []string {
	return []string{scanOne, scanCold, loopOne, incrOne, incrCold, incrIdle, oldOne, oursOne, oursCold, oursApart, oursIdle}
}

// cell is one size of workload.
type cell struct{ pods, waiting int }

func cells() []cell {
	var all []cell
	for _, pods := range []int{10, 100, 1000, 10000} {
		for _, waiting := range []int{1, 10, 100, 1000, 10000} {
			if waiting <= pods && (waiting <= 100 || pods >= 1000) {
				all = append(all, cell{pods, waiting})
			}
		}
	}
	return all
}

// grid holds the measurements.
type grid struct {
	costs map[cell]map[string]cost

	// idleEvaluations is the number of evaluations of Rego in one idle round of each cell.
	idleEvaluations int

	// tail is p99 over p50 of rounds with one changed pod.
	tail map[cell]float64
}

// ratio returns the ratio of two columns in one cell; ok is false when one was not
// measured.
func (g grid) ratio(at cell, column, of string) (float64, bool) {
	a, first := g.costs[at][column]
	b, second := g.costs[at][of]
	if !first || !second || b.cpu == 0 {
		return 0, false
	}
	return a.over(b), true
}

// implementation turns events into rulings.
type implementation interface {
	round(events []*corev1.Pod) []ruling
}

// maxQuadratic bounds pods times waiting pods for the predecessor, which takes seconds
// beyond.
const maxQuadratic = 1000 * 1000

// measureGrid measures every cell.
func measureGrid(samples int, progress io.Writer) (grid, error) {
	g := grid{costs: map[cell]map[string]cost{}, tail: map[cell]float64{}}
	for _, at := range cells() {
		start := time.Now()
		if err := g.measure(at, samples); err != nil {
			return grid{}, err
		}
		evaluations, err := idleEvaluations(at)
		if err != nil {
			return grid{}, err
		}
		g.idleEvaluations += evaluations
		if at.waiting <= 100 {
			tail, err := measureTail(at)
			if err != nil {
				return grid{}, err
			}
			g.tail[at] = tail
		}
		_, _ = fmt.Fprintf(progress, "measured %d pods, %d waiting in %.1fs\n", at.pods, at.waiting, time.Since(start).Seconds())
	}
	return g, nil
}

func (g *grid) measure(at cell, samples int) error {
	e, err := opa.New(opa.Options{})
	if err != nil {
		return err
	}
	// Each implementation has its own pods: an event changes one of them.
	usual := func() *workload { return newWorkload(usualRules(), at.pods, at.waiting) }
	forScan, forLoop, forIncr, forOld, forOurs := usual(), usual(), usual(), usual(), usual()
	forApart := newWorkload(distinctRules(), at.pods, at.waiting)
	ours, err := newPodOps(e, forOurs)
	if err != nil {
		return err
	}
	apart, err := newPodOps(e, forApart)
	if err != nil {
		return err
	}
	scan, incr := newGoScan(forScan), newGoIncr(forIncr)
	subjects := []subject{
		rounds(scanOne, forScan, scan, 1), rounds(scanCold, forScan, scan, at.waiting),
		rounds(loopOne, forLoop, newGoLoop(forLoop), 1),
		rounds(incrOne, forIncr, incr, 1), rounds(incrCold, forIncr, incr, at.waiting), rounds(incrIdle, forIncr, incr, 0),
		rounds(oursOne, forOurs, ours, 1), rounds(oursCold, forOurs, ours, at.waiting), rounds(oursIdle, forOurs, ours, 0),
		rounds(oursApart, forApart, apart, at.waiting),
	}
	if at.pods*at.waiting <= maxQuadratic {
		subjects = append(subjects, rounds(oldOne, forOld, newPredecessor(forOld), 1))
	}
	g.costs[at] = map[string]cost{}
	for i, cost := range measure(subjects, samples) {
		g.costs[at][subjects[i].name] = cost
	}
	return nil
}

// rounds returns the subject for rounds of one implementation, each after the given number
// of events.
func rounds(name string, f *workload, made implementation, dirty int) subject {
	var batches [][]*corev1.Pod
	next := 0
	return subject{
		name: name,
		setup: func(runs int) {
			batches = batches[:0]
			for range runs {
				batches = append(batches, f.events(next, dirty))
				next += dirty
			}
		},
		run: func(i int) { made.round(batches[i]) },
	}
}

// idleEvaluations returns how often Rego is evaluated in a round without changes.
func idleEvaluations(at cell) (int, error) {
	evaluations := 0
	e, err := opa.New(opa.Options{Observe: func(observed opa.Observation) { evaluations += observed.Evaluations }})
	if err != nil {
		return 0, err
	}
	p, err := newPodOps(e, newWorkload(usualRules(), at.pods, at.waiting))
	if err != nil {
		return 0, err
	}
	p.round(nil)
	evaluations = 0
	p.round(nil)
	return evaluations, nil
}

// measureTail returns p99 over p50 of rounds after one change, without other
// implementations: the median of several series.
func measureTail(at cell) (float64, error) {
	e, err := opa.New(opa.Options{})
	if err != nil {
		return 0, err
	}
	f := newWorkload(usualRules(), at.pods, at.waiting)
	p, err := newPodOps(e, f)
	if err != nil {
		return 0, err
	}
	var tails []float64
	for _, took := range latencies(rounds(oursOne, f, p, 1), 5, 1000) {
		tails = append(tails, quantile(took, 0.99)/quantile(took, 0.5))
	}
	return quantile(tails, 0.5), nil
}
