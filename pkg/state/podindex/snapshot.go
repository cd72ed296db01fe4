package podindex

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/approval"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/core/permit"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/rule/imports"
)

// Snapshot has the pods, owners and rules of a namespace at one moment. It shares pods,
// requests and rules with the index; they must not be modified.
type Snapshot struct {
	Namespace string

	// ResourceVersion up to which the pods have been seen; "" before the first list.
	ResourceVersion string

	// Rules that are in force, sorted by name.
	Rules []RuleView

	// Retired are the rules and PodDisruptionBudgets that were deleted less than RetiredFor ago, sorted by name.
	Retired []RetiredRule

	// Disruptions are the PodDisruptionBudgets that select a pod that waits, sorted by name.
	Disruptions []DisruptionView

	// Ripens is when the next pod will have been Ready for the minReadySeconds of its controller; zero for never.
	Ripens time.Time

	// Waiting are the requests of all pods, including pods that no rule selects;
	// oldest first.
	Waiting []rule.Request

	// NamespaceLabels are the labels of the namespace. Nil before the namespace is seen;
	// empty for a namespace without labels.
	NamespaceLabels map[string]string

	// BreakGlass is the reason of the namespace's break-glass annotation, and ClusterBreakGlass
	// the reason for the whole cluster; empty without the annotation.
	BreakGlass        string
	ClusterBreakGlass string

	// Freeze is the freeze of the whole cluster.
	Freeze rule.Freeze

	// Policies are the PodTransitionPolicies that rules of the namespace refer to, and their imports. A policy that does not
	// exist has no entry.
	Policies imports.Policies

	// Leftover are the pods that do not wait and have an annotation that explains an earlier wait,
	// sorted by name.
	Leftover []*corev1.Pod

	// Workloads are the workloads of the pods that wait, by UID, if their numbers are known. Nil when nothing waits.
	Workloads map[types.UID]rule.Workload

	// Approvals are the decisions about the workloads of the pods that wait, by UID. Nil without a rule of kind approval.
	Approvals map[types.UID]approval.Workload

	// Nodes are the known nodes of the pods that wait.
	Nodes map[string]*rule.Node

	waiting *waitingList

	// controllers are the controllers of the pods that wait, by UID.
	controllers map[types.UID]waitingOwner

	// kept are the waiting pods that their workloads keep for now. Nil when nothing waits.
	kept map[types.UID]bool

	// versions are the resourceVersions of the pods that records name.
	versions map[types.UID]string
}

// RuleView is one PodTransitionRule in a Snapshot.
type RuleView struct {
	Object *appsv1alpha1.PodTransitionRule

	// SelectorErr is why the selector is not valid; nil if it is.
	SelectorErr error

	Counts rule.Counts

	// OffTraffic is the number of counted pods that PodOps keeps off traffic.
	OffTraffic int

	// Unguarded are the counted pods that PodOps cannot guard.
	Unguarded Unguarded

	// NeverFinish are the first names of the Deployments with the strategy Recreate whose rollouts its
	// rules never let finish, sorted.
	NeverFinish []string

	// MaySurge is true when a rollout of a workload that it selects may create pods beyond the desired number.
	MaySurge bool

	// Waiting are the requests of the pods that it selects, oldest first. WaitingVersion changes if, and only
	// if, they do, and no other list of the Index has it; 0 for an empty list.
	Waiting        []rule.Request
	WaitingVersion uint64

	// WaitingPods is how many pods the requests are of.
	WaitingPods int

	// Live are the reservations of its record whose permit may still be written, by UID.
	Live map[types.UID]appsv1alpha1.ReservedPod

	// Owners count the selected pods of workloads whose desired number is not known, by
	// UID, and have the desired number of the workloads that are counted by their scale. Nil when
	// nothing waits and the record lists none.
	Owners map[types.UID]int

	// With are the numbers of selected, available pods that go with a pod that waits for its deletion, by the
	// UID of that pod. Nil in a namespace in which no pod owns others.
	With map[types.UID]int

	// Remembered are the numbers of pods in the record that still apply, by UID of the
	// workload: some of its pods are missing, or may be deleted at any time.
	Remembered map[types.UID]int

	// Unreadable are the workloads of the selected pods whose numbers cannot be read, sorted by
	// kind and name. Nil when all can.
	Unreadable []Owner

	// Inherited is true while the record comes from a deleted rule of the same name, and is
	// not yet stored in the status of this rule.
	Inherited bool

	// Pods are the selected pods, including terminating pods and without finished pods, sorted by
	// name. Nil unless they were requested.
	Pods []*rule.PodFact

	// Permits are the permits in its record, oldest first.
	Permits []rule.Permit

	// Unavailable are the first names of the pods that are unavailable or reserved,
	// sorted; at most rule.MaxBlockingPods. Nil when no pod waits.
	Unavailable []string
}

// Pod returns the object of a pod that waits.
func (v Snapshot) Pod(uid types.UID) *corev1.Pod {
	if v.waiting == nil {
		return nil
	}
	if p := v.waiting.pod(uid); p != nil {
		return p.object
	}
	return nil
}

// IsNeeded reports whether a pod waits for a deletion that its owner does not want any more: it was scaled out again, has
// lost other pods, or its rollout was undone, or as many pods of a DaemonSet or StatefulSet as may be are unavailable, or other
// pods of its ReplicaSet go in its place. The deletion ends or goes on after a while. A permit would only take the pod off traffic meanwhile.
// PodOps removes no pod of a StatefulSet while it does not know that it is to go.
func (v Snapshot) IsNeeded(uid types.UID) bool {
	if v.waiting == nil {
		return false
	}
	p := v.waiting.pod(uid)
	if p == nil {
		return false
	}
	owner := v.controllers[p.controller.UID]
	switch {
	case v.kept[uid]:
		return true
	case p.pending == nil || owner.replaces == nil:
		return false
	}
	want := deferreddelete.WantFor(owner.replaces, p.object, *p.pending)
	return want == deferreddelete.Unwanted || want == deferreddelete.WantUnknown && deferreddelete.Finishes(p.object)
}

// At returns the resourceVersion of a pod that waits or that a record names; "" when there is
// no such pod.
func (v Snapshot) At(uid types.UID) string {
	if version, ok := v.versions[uid]; ok || v.waiting == nil {
		return version
	}
	if p := v.waiting.pod(uid); p != nil {
		return p.fact.ResourceVersion
	}
	return ""
}

// Records returns the records of permits by the names of their budgets (permit.Budget), in the order in which
// they are written: the records of PodTransitionRules, and then the records of the PodDisruptionBudgets
// of pods that wait. A record is nil before its first batch.
func (v Snapshot) Records() iter.Seq2[string, *appsv1alpha1.PermitRecord] {
	return func(yield func(string, *appsv1alpha1.PermitRecord) bool) {
		for _, view := range v.Rules {
			if !yield(view.Object.Name, view.Object.Status.Permits) {
				return
			}
		}
		for _, view := range v.Disruptions {
			if !yield(view.ID().String(), view.Record) {
				return
			}
		}
	}
}

// Snapshot returns a snapshot of a namespace. pods reports whether the snapshot includes all
// selected pods of a PodTransitionRule, which costs time for each of them; nil includes no
// selected pods. pods must not call the index.
func (x *Index) Snapshot(name string, pods func(*appsv1alpha1.PodTransitionRule) bool) Snapshot {
	x.mu.Lock()
	defer x.mu.Unlock()
	v := Snapshot{
		Namespace: name, ResourceVersion: x.seen,
		NamespaceLabels: x.labels[name], BreakGlass: x.breakGlass[name], ClusterBreakGlass: x.breakGlass[""], Freeze: x.freeze,
		Policies: imports.Policies{},
		versions: map[types.UID]string{},
	}
	n, ok := x.namespaces[name]
	if !ok {
		return v
	}
	v.waiting = n.waiting.ordered()
	v.Waiting = v.waiting.requests
	if len(v.Waiting) > 0 {
		v.controllers, v.Workloads = n.waitingOwners(v.Waiting)
		v.kept = n.kept(v.Waiting)
		v.Nodes = x.waitingNodes(v.Waiting)
		v.Approvals = n.waitingApprovals(v.Waiting)
	}
	v.Disruptions = n.disruptionViews(v.versions)
	for _, p := range n.leftover {
		v.Leftover = append(v.Leftover, p.object)
	}
	slices.SortFunc(v.Leftover, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	for _, ruleName := range slices.Sorted(maps.Keys(n.retired)) {
		v.Retired = append(v.Retired, n.retired[ruleName])
	}
	v.Ripens = n.ripen(x.now)
	led := n.groups()
	for _, ruleName := range slices.Sorted(maps.Keys(n.rules)) {
		r := n.rules[ruleName]
		rule := n.ruleView(r, v.versions)
		n.countGroups(r, &rule, led)
		n.countRipening(r, &rule, led)
		if pods != nil && pods(r.object) {
			rule.Pods = r.pods()
		}
		v.Rules = append(v.Rules, rule)
		for _, used := range r.policies {
			for _, name := range x.policies.Closure(used) {
				if object, ok := x.policies[name]; ok {
					v.Policies[name] = object
				}
			}
		}
	}
	return v
}

func (n *namespace) ruleView(r *ruleset, versions map[types.UID]string) RuleView {
	waiting, uncontrolled := r.waiting.ordered(), n.countUncontrolled(r)
	view := RuleView{
		Object:      r.object,
		SelectorErr: r.selectorErr,
		Inherited:   r.inherited != nil,
		Waiting:     waiting.requests, WaitingVersion: waiting.version, WaitingPods: len(r.waiting.pods),
		Live:       n.live(r.object.Status.Permits, versions),
		OffTraffic: r.offTraffic, Unreadable: n.unreadable(r), NeverFinish: n.neverFinish(r), MaySurge: n.maySurge(r),
		Unguarded: countUnguarded(r.unguarded),
		Counts:    rule.Counts{Selected: r.counted + uncontrolled, Desired: n.desired(r), Available: r.available + uncontrolled},
	}
	record := r.object.Status.Permits
	if record != nil {
		for _, recent := range record.Recent {
			view.Permits = append(view.Permits, rule.Permit{Pod: recent.Pod, At: recent.Time.Time})
		}
	}
	for uid := range view.Live {
		if p := r.selected[uid]; p != nil && p.fact.Available {
			view.Counts.Reserved++
		}
	}
	if counts := record != nil && len(record.Owners) > 0; counts || len(view.Waiting) > 0 {
		view.Owners = n.owned(r)
		if counts {
			view.Remembered = n.remembered(r, record, view.Live, view.Owners)
		}
	}
	if len(view.Waiting) > 0 {
		view.Unavailable = r.inTheWay(view.Live)
	}
	return view
}

// live returns the reservations of a record whose permit may still be written, by UID, and adds the
// resourceVersions of the pods that the record lists to versions.
func (n *namespace) live(record *appsv1alpha1.PermitRecord, versions map[types.UID]string) map[types.UID]appsv1alpha1.ReservedPod {
	live := map[types.UID]appsv1alpha1.ReservedPod{}
	if record == nil {
		return live
	}
	for _, reserved := range record.Reserved {
		if p, ok := n.pods[reserved.UID]; ok {
			versions[reserved.UID] = p.fact.ResourceVersion
		}
	}
	for _, reserved := range permit.Live(record, func(uid types.UID) string { return versions[uid] }) {
		live[reserved.UID] = reserved
	}
	return live
}
