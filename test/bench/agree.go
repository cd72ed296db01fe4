package main

import (
	"fmt"
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/engine/opa"
)

// agreement is the number of rulings of all implementations that were compared with the rulings of
// go-scan.
type agreement struct {
	rulings int

	// differs names the first difference; empty when all agree.
	differs string
}

// compare sends the same events to all implementations, in different orders, and compares
// their rulings. Sequences of events come from a fixed seed.
func compare() (agreement, error) {
	a := agreement{}
	random := rand.New(rand.NewPCG(1, 2))
	for _, at := range []cell{{10, 1}, {10, 10}, {100, 10}, {100, 100}, {1000, 100}} {
		for _, rules := range [][]appsv1alpha1.TransitionRule{usualRules(), distinctRules()} {
			for range 3 {
				if err := a.compare(newWorkload(rules, at.pods, at.waiting), random); err != nil {
					return a, err
				}
			}
		}
	}
	return a, nil
}

func (a *agreement) compare(f *workload, random *rand.Rand) error {
	// Pods of an earlier workload have the same names, so it needs its own engine.
	e, err := opa.New(opa.Options{})
	if err != nil {
		return err
	}
	mixed := &workload{rules: f.rules, pods: shuffled(f.pods, random)}
	ours, err := newPodOps(e, f)
	if err != nil {
		return err
	}
	oursMixed, err := newPodOps(e, mixed)
	if err != nil {
		return err
	}
	reference := newGoScan(f)
	others := map[string]implementation{
		"go-incr": newGoIncr(f), "go-loop": newGoLoop(mixed), "quadratic": newPredecessor(mixed),
		"podops": ours, "podops, shuffled": oursMixed,
	}
	for step := range 12 {
		events := f.events(step, random.IntN(len(f.waiting)+1))
		want := reference.round(events)
		for name, other := range others {
			got := other.round(shuffled(events, random))
			a.rulings += len(want)
			if a.differs == "" && !slices.Equal(want, got) {
				a.differs = fmt.Sprintf("%s with %d pods, %d waiting, step %d", name, len(f.pods), len(f.waiting), step)
			}
		}
	}
	return nil
}

func shuffled(pods []*corev1.Pod, random *rand.Rand) []*corev1.Pod {
	mixed := slices.Clone(pods)
	random.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
	return mixed
}
