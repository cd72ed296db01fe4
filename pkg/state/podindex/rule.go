package podindex

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/objectbounds"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/state/policyusers"
)

// ruleset is one PodTransitionRule and the counts of the pods that it selects.
type ruleset struct {
	object   *appsv1alpha1.PodTransitionRule
	selector labels.Selector

	// inherited is the record in object that the stored object does not have yet. See
	// inherit.
	inherited *appsv1alpha1.PermitRecord

	// selectorErr is why the selector is not valid. The rule then selects nothing.
	selectorErr error

	selected  map[types.UID]*pod
	counted   int
	available int

	// strays counts the counted pods that are strays.
	strays int

	// offTraffic counts the counted pods that PodOps keeps off traffic.
	offTraffic int

	// unavailable are the counted pods that are not available.
	unavailable map[types.UID]*pod

	// unguarded are the counted pods that PodOps cannot guard.
	unguarded map[types.UID]*pod

	// blocking are the first names of the unavailable pods; nil when not known.
	blocking []string

	// byOwner counts the counted pods of each controller.
	byOwner map[types.UID]int

	// covered are the workloads that it covers. See covers.
	covered map[types.UID]bool

	waiting *queue

	// custom is true if some rule is of kind rego. policies are the names of the policies that
	// the rules refer to, sorted.
	custom   bool
	policies []string

	// approval is true if some rule is of kind approval.
	approval bool

	// targets are the first names of the selected pods; nil when not known. Statuses share
	// them, so they are replaced and never modified.
	targets []string
}

func newRule(object *appsv1alpha1.PodTransitionRule, versions *uint64) *ruleset {
	r := &ruleset{
		object:      object,
		selected:    map[types.UID]*pod{},
		unavailable: map[types.UID]*pod{},
		unguarded:   map[types.UID]*pod{},
		byOwner:     map[types.UID]int{},
		covered:     map[types.UID]bool{},
		waiting:     newQueue(versions),
	}
	r.selector, r.selectorErr = Selector(object)
	r.custom = slices.ContainsFunc(object.Spec.Rules, func(rule appsv1alpha1.TransitionRule) bool { return rule.Rego != nil })
	r.approval = slices.ContainsFunc(object.Spec.Rules, func(rule appsv1alpha1.TransitionRule) bool { return rule.Approval != nil })
	r.policies = policyusers.Index(object)
	return r
}

// pods returns the facts of the selected pods that have not finished, sorted by name, including
// terminating pods. A finished pod, such as an evicted one, never serves again and blocks no other
// pod.
func (r *ruleset) pods() []*rule.PodFact {
	facts := make([]*rule.PodFact, 0, len(r.selected))
	for _, p := range r.selected {
		if !p.finished {
			facts = append(facts, p.fact)
		}
	}
	slices.SortFunc(facts, func(a, b *rule.PodFact) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(string(a.UID), string(b.UID)))
	})
	return facts
}

// inTheWay returns the first names of the pods that are unavailable or reserved.
func (r *ruleset) inTheWay(reserved map[types.UID]appsv1alpha1.ReservedPod) []string {
	if r.blocking == nil {
		r.blocking = make([]string, 0, rule.MaxBlockingPods+1)
		for _, p := range r.unavailable {
			r.blocking = withFirst(r.blocking, p.fact.Name)
		}
	}
	names := slices.Clone(r.blocking)
	for uid := range reserved {
		if p := r.selected[uid]; p != nil && p.fact.Available {
			names = withFirst(names, p.fact.Name)
		}
	}
	return names
}

// withFirst adds a name to sorted names and keeps the first rule.MaxBlockingPods.
func withFirst(names []string, name string) []string {
	if len(names) == rule.MaxBlockingPods && names[len(names)-1] <= name {
		return names
	}
	at, _ := slices.BinarySearch(names, name)
	names = slices.Insert(names, at, name)
	return names[:min(len(names), rule.MaxBlockingPods)]
}

// Selector compiles the selector of a PodTransitionRule. If it is absent or empty, Selector
// returns an error and a selector that selects nothing.
func Selector(object *appsv1alpha1.PodTransitionRule) (labels.Selector, error) {
	selector, err := metav1.LabelSelectorAsSelector(object.Spec.Selector)
	if tooLarge := objectbounds.TooLarge(object); tooLarge != nil && object.Spec.Selector == nil {
		return labels.Nothing(), tooLarge
	}
	switch {
	case err != nil:
		return labels.Nothing(), fmt.Errorf("parsing spec.selector: %w", err)
	case object.Spec.Selector == nil || selector.Empty():
		return labels.Nothing(), errors.New("spec.selector is empty")
	default:
		return selector, nil
	}
}

// add counts a pod if the rule selects it, and reports whether it does.
func (r *ruleset) add(p *pod) bool {
	if !r.selector.Matches(labels.Set(p.fact.Labels)) {
		return false
	}
	r.selected[p.fact.UID] = p
	if len(p.requests) > 0 {
		r.waiting.put(p)
	}
	if p.counts && !p.fact.Available {
		r.unavailable[p.fact.UID], r.blocking = p, nil
	}
	if p.counts && p.gap != "" {
		r.unguarded[p.fact.UID] = p
	}
	r.count(p, 1)
	return true
}

// cover records whether the rule covers a workload.
func (r *ruleset) cover(uid types.UID, owner Owner) {
	if r.covers(owner) {
		r.covered[uid] = true
		return
	}
	delete(r.covered, uid)
}

// remove removes a pod from the counts, and reports whether it was selected.
func (r *ruleset) remove(p *pod) bool {
	if _, ok := r.selected[p.fact.UID]; !ok {
		return false
	}
	delete(r.selected, p.fact.UID)
	delete(r.unguarded, p.fact.UID)
	r.waiting.drop(p.fact.UID)
	if r.unavailable[p.fact.UID] != nil {
		delete(r.unavailable, p.fact.UID)
		r.blocking = nil
	}
	r.count(p, -1)
	return true
}

func (r *ruleset) count(p *pod, by int) {
	if !p.counts {
		return
	}
	r.counted += by
	r.byOwner[p.controller.UID] += by
	if r.byOwner[p.controller.UID] == 0 {
		delete(r.byOwner, p.controller.UID)
	}
	if p.fact.Available {
		r.available += by
	}
	if p.isStray() {
		r.strays += by
	}
	if p.offTraffic {
		r.offTraffic += by
	}
}
