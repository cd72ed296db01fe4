package facts

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/permit"
	"github.com/podops-dev/podops/pkg/policy"
)

// View is what decisions in one namespace are made from, at one moment. It shares pods,
// requests and rules with the index; they must not be modified.
type View struct {
	Namespace string

	// ResourceVersion up to which the pods have been seen; "" before the first list.
	ResourceVersion string

	// Rules that are in force, sorted by name.
	Rules []RuleView

	// Waiting are all requests that wait, of pods that some rule selects or none;
	// oldest first.
	Waiting []policy.Request

	// NamespaceLabels are those of the namespace. Nil when it has not been seen; empty
	// when it has none.
	NamespaceLabels map[string]string

	// Policies are the PodTransitionPolicies that rules of the namespace refer to, by
	// name. One that does not exist is missing.
	Policies map[string]*appsv1alpha1.PodTransitionPolicy

	// Leftover are pods that wait for nothing and still carry an annotation that says
	// what they wait for, sorted by name.
	Leftover []*corev1.Pod

	waiting *waitingList

	// versions are the resourceVersions of the pods that are named in a record.
	versions map[types.UID]string
}

// RuleView is one PodTransitionRule in a View.
type RuleView struct {
	Object *appsv1alpha1.PodTransitionRule

	// SelectorErr is why the selector cannot be used.
	SelectorErr error

	Counts policy.Counts

	// Waiting are the requests of the pods that it selects, oldest first.
	Waiting []policy.Request

	// Live are the reservations of its record that may still be stamped, by UID.
	Live map[types.UID]appsv1alpha1.ReservedPod

	// Pods are all that it selects, those that are terminating included and those that
	// have finished left out, sorted by name. Nil unless they were asked for.
	Pods []*policy.PodFact

	// Permits are those that its record lists, oldest first.
	Permits []policy.Permit

	// Unavailable are the first names of the pods that are unavailable or reserved,
	// sorted; at most policy.MaxBlockingPods. Nil when nobody waits.
	Unavailable []string
}

// Pod returns the object of a pod that waits.
func (v View) Pod(uid types.UID) *corev1.Pod {
	if v.waiting == nil {
		return nil
	}
	if p := v.waiting.pod(uid); p != nil {
		return p.object
	}
	return nil
}

// At returns the resourceVersion of a pod that waits or is named in a record, "" when
// there is no such pod.
func (v View) At(uid types.UID) string {
	if version, ok := v.versions[uid]; ok || v.waiting == nil {
		return version
	}
	if p := v.waiting.pod(uid); p != nil {
		return p.fact.ResourceVersion
	}
	return ""
}

// View returns the facts of a namespace. pods says for which PodTransitionRules all the
// selected pods are wanted, which costs as much as there are; nil: for none. It must not
// call back into the index.
func (x *Index) View(name string, pods func(*appsv1alpha1.PodTransitionRule) bool) View {
	x.mu.Lock()
	defer x.mu.Unlock()
	v := View{
		Namespace: name, ResourceVersion: x.seen,
		NamespaceLabels: x.labels[name], Policies: map[string]*appsv1alpha1.PodTransitionPolicy{},
		versions: map[types.UID]string{},
	}
	n, ok := x.namespaces[name]
	if !ok {
		return v
	}
	v.waiting = n.waiting.look()
	v.Waiting = v.waiting.requests
	for _, p := range n.leftover {
		v.Leftover = append(v.Leftover, p.object)
	}
	slices.SortFunc(v.Leftover, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	for _, ruleName := range slices.Sorted(maps.Keys(n.rules)) {
		r := n.rules[ruleName]
		rule := n.ruleView(r, v.versions)
		if pods != nil && pods(r.object) {
			rule.Pods = r.pods()
		}
		v.Rules = append(v.Rules, rule)
		for _, used := range r.policies {
			if object, ok := x.policies[used]; ok {
				v.Policies[used] = object
			}
		}
	}
	return v
}

func (n *namespace) ruleView(r *rule, versions map[types.UID]string) RuleView {
	view := RuleView{
		Object:      r.object,
		SelectorErr: r.selectorErr,
		Waiting:     r.waiting.look().requests,
		Live:        map[types.UID]appsv1alpha1.ReservedPod{},
		Counts:      policy.Counts{Selected: r.counted, Desired: n.desired(r), Available: r.available},
	}
	record := r.object.Status.Permits
	at := func(uid types.UID) string {
		if p, ok := n.pods[uid]; ok {
			return p.fact.ResourceVersion
		}
		return ""
	}
	if record != nil {
		for _, reserved := range record.Reserved {
			if version := at(reserved.UID); version != "" {
				versions[reserved.UID] = version
			}
		}
		for _, recent := range record.Recent {
			view.Permits = append(view.Permits, policy.Permit{Pod: recent.Pod, At: recent.Time.Time})
		}
	}
	for _, reserved := range permit.Live(record, at) {
		view.Live[reserved.UID] = reserved
		if p := n.pods[reserved.UID]; p.fact.Available && r.selected[reserved.UID] != nil {
			view.Counts.Reserved++
		}
	}
	if len(view.Waiting) > 0 {
		view.Unavailable = r.inTheWay(view.Live)
	}
	return view
}
