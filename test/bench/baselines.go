package main

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/state/podindex"
)

// goScan reads every pod in every round, in plain Go.
type goScan struct {
	selector labels.Selector
	rules    []plainRule
	pods     []*corev1.Pod
	at       map[types.UID]int
}

func newGoScan(f *workload) *goScan {
	s := &goScan{selector: selectorOf(f.podTransitionRule().Spec.Selector), rules: plainRules(f.rules), at: map[types.UID]int{}}
	for _, pod := range f.pods {
		s.at[pod.UID] = len(s.pods)
		s.pods = append(s.pods, pod)
	}
	return s
}

func (s *goScan) round(events []*corev1.Pod) []ruling {
	for _, pod := range events {
		s.pods[s.at[pod.UID]] = pod
	}
	c, candidates := scan(s.pods, s.selector)
	slices.SortFunc(candidates, inOrder)
	return decide(s.rules, candidates, c)
}

// scan is one pass over the pods.
func scan(pods []*corev1.Pod, selector labels.Selector) (c counts, waiting []candidate) {
	for _, pod := range pods {
		if !isThere(pod) || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		c.selected++
		if isAvailable(pod) {
			c.available++
		}
		if one, ok := candidateOf(pod); ok {
			waiting = append(waiting, one)
		}
	}
	return c, waiting
}

// goIncr is PodOps with its rules written in Go: it has the same index, which keeps the
// counts and the waiting pods up to date, and the same snapshot of it. The difference to
// PodOps is the cost of rules that users write.
type goIncr struct {
	store cache.ReflectorStore
	index *podindex.Index
	rules []plainRule
}

func newGoIncr(f *workload) *goIncr {
	g := &goIncr{index: podindex.NewIndex(func(string) {}), rules: plainRules(f.rules)}
	g.store = g.index.PodStore()
	fill(g.index, f)
	return g
}

// fill puts the pods and the rules of a workload into an index.
func fill(index *podindex.Index, f *workload) {
	index.SetRule(f.podTransitionRule())
	store := index.PodStore()
	for _, pod := range f.pods {
		if err := store.Add(pod); err != nil {
			panic(err) // the store accepts every pod
		}
	}
}

func (g *goIncr) round(events []*corev1.Pod) []ruling {
	for _, pod := range events {
		if err := g.store.Update(pod); err != nil {
			panic(err) // the store accepts every pod
		}
	}
	view := g.index.Snapshot(namespace, nil).Rules[0]
	candidates := make([]candidate, 0, len(view.Waiting))
	for _, request := range view.Waiting {
		candidates = append(candidates, candidate{
			uid: request.Pod.UID, kind: request.Type, labels: request.Pod.Labels, skip: request.Pod.SkipRules,
			available: request.Pod.Available,
		})
	}
	return decide(g.rules, candidates, counts{selected: view.Counts.Selected, available: view.Counts.Available})
}

// goLoop is a lower bound: it keeps only counts and a sorted list of the waiting pods, for
// one rule object, and loops over the latter.
type goLoop struct {
	selector   labels.Selector
	rules      []plainRule
	pods       map[types.UID]*corev1.Pod
	counts     counts
	candidates []candidate
}

func newGoLoop(f *workload) *goLoop {
	g := &goLoop{selector: selectorOf(f.podTransitionRule().Spec.Selector), rules: plainRules(f.rules), pods: map[types.UID]*corev1.Pod{}}
	for _, pod := range f.pods {
		g.add(pod)
	}
	return g
}

func (g *goLoop) round(events []*corev1.Pod) []ruling {
	for _, pod := range events {
		g.remove(pod.UID)
		g.add(pod)
	}
	return decide(g.rules, g.candidates, g.counts)
}

func (g *goLoop) add(pod *corev1.Pod) {
	if !isThere(pod) || !g.selector.Matches(labels.Set(pod.Labels)) {
		return
	}
	g.pods[pod.UID] = pod
	g.counts.selected++
	if isAvailable(pod) {
		g.counts.available++
	}
	if one, ok := candidateOf(pod); ok {
		at, _ := slices.BinarySearchFunc(g.candidates, one, inOrder)
		g.candidates = slices.Insert(g.candidates, at, one)
	}
}

func (g *goLoop) remove(uid types.UID) {
	pod, ok := g.pods[uid]
	if !ok {
		return
	}
	delete(g.pods, uid)
	g.counts.selected--
	if isAvailable(pod) {
		g.counts.available--
	}
	if one, ok := candidateOf(pod); ok {
		at, _ := slices.BinarySearchFunc(g.candidates, one, inOrder)
		g.candidates = slices.Delete(g.candidates, at, at+1)
	}
}

// predecessor is a model of the evaluation of PodOps' predecessor: every round parses the
// rules, selects all pods, and counts all of them again for each pod that waits. In its
// favour, it has one round for many events, and a cache that does not copy listed objects.
type predecessor struct {
	object *appsv1alpha1.PodTransitionRule
	pods   []*corev1.Pod
	at     map[types.UID]int
}

func newPredecessor(f *workload) *predecessor {
	p := &predecessor{object: f.podTransitionRule(), at: map[types.UID]int{}}
	for _, pod := range f.pods {
		p.at[pod.UID] = len(p.pods)
		p.pods = append(p.pods, pod)
	}
	return p
}

func (p *predecessor) round(events []*corev1.Pod) []ruling {
	for _, pod := range events {
		p.pods[p.at[pod.UID]] = pod
	}
	rules := plainRules(p.object.Spec.Rules)
	selector := selectorOf(p.object.Spec.Selector)
	_, candidates := scan(p.pods, selector)
	slices.SortFunc(candidates, inOrder)
	selected := map[string]*corev1.Pod{}
	for _, pod := range p.pods {
		if isThere(pod) && selector.Matches(labels.Set(pod.Labels)) {
			selected[pod.Name] = pod
		}
	}
	rulings := make([]ruling, 0, len(candidates))
	taken := 0
	for _, one := range candidates {
		c := counts{available: -taken}
		for _, pod := range selected {
			c.selected++
			if isAvailable(pod) {
				c.available++
			}
		}
		r := decide(rules, []candidate{one}, c)[0]
		if r.granted && one.available {
			taken++
		}
		rulings = append(rulings, r)
	}
	return rulings
}
