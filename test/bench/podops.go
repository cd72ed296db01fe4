package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/engine/evaluation"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/state/podindex"
)

// podOps is PodOps from an event to the rulings: its index, its snapshot, its programs and
// its memory. It shares only the allocation with the other implementations.
type podOps struct {
	index      *podindex.Index
	store      cache.ReflectorStore
	programs   []*opa.Program
	remembered []*evaluation.Recollection
}

func newPodOps(e *opa.Engine, f *workload) (*podOps, error) {
	p := &podOps{index: podindex.NewIndex(func(string) {})}
	p.store = p.index.PodStore()
	fill(p.index, f)
	for _, rule := range f.rules {
		program, err := prepare(context.Background(), e, object, rule)
		if err != nil {
			return nil, err
		}
		p.programs, p.remembered = append(p.programs, program), append(p.remembered, &evaluation.Recollection{})
	}
	return p, nil
}

// prepare compiles a rule of a PodTransitionRule.
func prepare(ctx context.Context, e *opa.Engine, object string, rule appsv1alpha1.TransitionRule) (*opa.Program, error) {
	module, err := spec.Rule(types.NamespacedName{Namespace: namespace, Name: object}, rule, nil)
	if err != nil {
		return nil, err
	}
	return e.Prepare(ctx, module)
}

func (p *podOps) round(events []*corev1.Pod) []ruling {
	for _, pod := range events {
		if err := p.store.Update(pod); err != nil {
			panic(err) // the store accepts every pod
		}
	}
	view := p.index.Snapshot(namespace, nil).Rules[0]
	rulings, needs, left := p.evaluate(view)
	for n := range rulings {
		rulings[n] = allocate(rulings[n], needs[n], &left)
	}
	return rulings
}

// evaluate returns the verdicts of the rules for each waiting request: withheld, or in need of a
// slot, and the number of slots.
func (p *podOps) evaluate(view podindex.RuleView) (rulings []ruling, needs []bool, slots int) {
	rulings = make([]ruling, len(view.Waiting))
	needs = make([]bool, len(view.Waiting))
	for n, request := range view.Waiting {
		rulings[n].pod = request.Pod.UID
	}
	for i, program := range p.programs {
		verdicts, capacity, err := p.remembered[i].Evaluate(
			context.Background(), program, program.Stage(), rule.Environment{Counts: view.Counts}, view.Waiting, view.WaitingVersion)
		if err != nil {
			panic(fmt.Errorf("a rule of the benchmark fails: %w", err))
		}
		for n, verdict := range verdicts {
			switch verdict.Outcome {
			case rule.NeedsSlot:
				needs[n] = true
			case rule.Withheld:
				rulings[n].withheld |= 1 << i
			case rule.Passed:
			}
		}
		if capacity != nil {
			slots = capacity.Slots
		}
	}
	return rulings, needs, slots
}
