package main

import (
	"fmt"
	"io"
	"time"

	"github.com/podops-dev/podops/pkg/engine/opa"
)

// The sizes between which costs must not grow with the pods that do not wait.
const (
	growthFrom = 1000
	growthTo   = 10000
)

// growth is the ratio of the cost of a round of the larger workload to the cost of a round
// of the smaller workload with as many waiting pods: the worst over the numbers of waiting
// pods, by column.
type growth map[string]float64

// measureGrowth takes the samples of both sizes in turn. The cells of the grid are minutes
// apart, and the speed of a machine drifts in that time.
func measureGrowth(samples int, progress io.Writer) (growth, error) {
	worst := growth{}
	for _, waiting := range []int{1, 10, 100, 1000} {
		start := time.Now()
		small, err := growthSubjects(cell{growthFrom, waiting})
		if err != nil {
			return nil, err
		}
		large, err := growthSubjects(cell{growthTo, waiting})
		if err != nil {
			return nil, err
		}
		var subjects []subject
		for i := range small {
			subjects = append(subjects, small[i], large[i])
		}
		costs := measure(subjects, samples)
		for i := range small {
			column := small[i].name
			worst[column] = max(worst[column], costs[2*i+1].over(costs[2*i]))
		}
		_, _ = fmt.Fprintf(progress, "measured %d and %d pods by turns, %d waiting, in %.1fs\n",
			growthFrom, growthTo, waiting, time.Since(start).Seconds())
	}
	return worst, nil
}

func growthSubjects(at cell) ([]subject, error) {
	e, err := opa.New(opa.Options{})
	if err != nil {
		return nil, err
	}
	forIncr, forOurs := newWorkload(usualRules(), at.pods, at.waiting), newWorkload(usualRules(), at.pods, at.waiting)
	ours, err := newPodOps(e, forOurs)
	if err != nil {
		return nil, err
	}
	incr := newGoIncr(forIncr)
	return []subject{
		rounds(oursOne, forOurs, ours, 1), rounds(oursCold, forOurs, ours, at.waiting),
		rounds(incrOne, forIncr, incr, 1), rounds(incrCold, forIncr, incr, at.waiting),
	}, nil
}

func (g growth) goals() []goal {
	law := func(wants, ours, theirs string, below float64) goal {
		return limit("P6", wants, fmt.Sprintf("%s (%s %s)", times(g[ours]), theirs, times(g[theirs])), g[ours], below)
	}
	return []goal{
		law("N=1000 -> 10000, 1 dirty <= 1.2x", oursOne, incrOne, 1.2),
		law("N=1000 -> 10000, cold <= 1.5x", oursCold, incrCold, 1.5),
	}
}
