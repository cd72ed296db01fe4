package podindex

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/core/rule"
)

// Owner is a workload that controls pods, or other owners.
type Owner struct {
	UID       types.UID
	Namespace string
	Kind      string
	Name      string

	// Controller is the owner of this owner; empty for the top of the chain.
	Controller types.UID

	// Above is this owner as an owner reference names it; zero for the top of the chain.
	Above OwnerName

	// Desired is the desired number of its pods.
	Desired int

	// MinReady is for how long a pod must be Ready until its controller counts it as available.
	MinReady time.Duration

	// Uncounted is true while Desired is not known.
	Uncounted bool

	// TemplateLabels are the labels of its pod template; nil without a template.
	TemplateLabels map[string]string

	// Scale is true for a workload that has no known pod template, and whose numbers are read
	// from its scale subresource.
	Scale bool

	// Observed is status.replicas of the scale, or of a ReplicaSet: the number of pods that its controller has counted.
	Observed int

	// Unlabeled is how many pods in the status of a ReplicaSet may be without the control label: where the template has the
	// label, the pods that lack one of its labels.
	Unlabeled int

	// Unreadable is why its numbers cannot be read; empty if they can.
	Unreadable string

	// Revision is the revision of a Deployment's ReplicaSet; 0 without a revision. The
	// newest ReplicaSet of a Deployment has the highest.
	Revision int64

	// UpdateRevision and CurrentRevision are the fields of these names in the status of a
	// StatefulSet.
	UpdateRevision  string
	CurrentRevision string

	// Created is when it was created.
	Created time.Time

	// Recreates is true for a Deployment of the strategy Recreate: it creates no new pod before
	// every old pod is deleted. SkipRules are then the names of the rules that its pods skip.
	Recreates bool
	SkipRules []string

	// Surges is true for a workload whose rollouts create pods beyond the desired number.
	Surges bool

	// Paused is true for a Deployment that is paused, and for a Job that is suspended.
	Paused bool

	// Terminating is true once it has a deletion timestamp.
	Terminating bool

	// Template is the hash of the pod template (approval.Revision) of a ReplicaSet, Deployment, StatefulSet or DaemonSet of controlled
	// pods, and Author who wrote it; empty if that is not known. Processed is false while the status is of an older template.
	Template  string
	Author    string
	Processed bool

	// Replaces is the StatefulSet or the DaemonSet itself, whose wishes for its pods are computed from it; nil for other
	// kinds. It must not be modified. Progress is what they follow from.
	Replaces deferreddelete.Owner
	Progress string
}

// OwnerName names an object that need not exist.
type OwnerName struct{ APIVersion, Kind, Name string }

// hasSamePlace reports whether another version of a workload has the same controller, kind, name
// and revisions, and both or neither want pods.
func (o Owner) hasSamePlace(other Owner) bool {
	return o.UpdateRevision == other.UpdateRevision && o.CurrentRevision == other.CurrentRevision && o.Created.Equal(other.Created) &&
		(o.Desired == 0) == (other.Desired == 0) && o.Controller == other.Controller && o.Kind == other.Kind && o.Name == other.Name &&
		o.Revision == other.Revision && o.Template == other.Template && o.Above == other.Above && o.scales() == other.scales()
}

// equals reports whether another version of a workload is the same.
func (o Owner) equals(other Owner) bool {
	return o.hasSamePlace(other) && o.hasSameNumbers(other) && o.Terminating == other.Terminating && o.Unreadable == other.Unreadable &&
		o.Recreates == other.Recreates && o.Surges == other.Surges && o.Paused == other.Paused && o.Progress == other.Progress &&
		o.Author == other.Author && o.Processed == other.Processed &&
		slices.Equal(o.SkipRules, other.SkipRules) && maps.Equal(o.TemplateLabels, other.TemplateLabels)
}

// hasSameNumbers reports whether another version of a workload has, and wants, the same numbers of pods.
func (o Owner) hasSameNumbers(other Owner) bool {
	return o.Desired == other.Desired && o.MinReady == other.MinReady && o.Uncounted == other.Uncounted && o.Scale == other.Scale &&
		o.Observed == other.Observed && o.Unlabeled == other.Unlabeled
}

// covers reports whether the rule selects the pods of the workload's template. A rule that selects
// two canaries of ten replicas does not cover their workload, and counts two. No rule covers a
// workload whose template is not controlled by PodOps or that is terminating: its missing pods will
// not be created.
func (r *ruleset) covers(owner Owner) bool {
	return !owner.Terminating && !owner.Uncounted && appsv1alpha1.IsControlled(owner.TemplateLabels) &&
		r.selector.Matches(labels.Set(owner.TemplateLabels))
}

// neverFinish returns the first names of the Deployments that cannot finish a rollout under the rules
// of a PodTransitionRule, sorted.
func (n *namespace) neverFinish(r *ruleset) []string {
	var names []string
	for uid := range r.covered {
		owner := n.owners[uid]
		if owner.Recreates && len(rule.WithholdsSome(r.object.Spec.Rules, owner.Desired, owner.TemplateLabels, owner.SkipRules)) > 0 {
			names = withFirst(names, owner.Name)
		}
	}
	return names
}

// maySurge reports whether a rollout may create pods beyond the desired number. A workload of an unknown kind may.
func (n *namespace) maySurge(r *ruleset) bool {
	for uid := range r.covered {
		if n.owners[uid].Surges {
			return true
		}
	}
	for uid := range r.byOwner {
		if top, counted := n.countedOwner(r, uid); counted && n.owners[top].Scale {
			return true
		}
	}
	return false
}

// isCounted reports whether the desired number of a workload counts for a rule: the rule covers
// the workload, or the workload is counted by its scale, and
//   - it is not terminating,
//   - the rule selects each of its pods,
//   - its controller counts the same pods as the index, with or without terminating and finished
//     pods. It differs for a moment after each change, for a workload with pods that are not
//     under PodOps, and for a kind whose replicas are not pods, such as shards.
func (n *namespace) isCounted(r *ruleset, uid types.UID) bool {
	owner, known := n.owners[uid]
	if !known || !owner.Scale {
		return r.covered[uid]
	}
	c := n.controllers[uid]
	if c == nil {
		return n.coversBelow(r, uid)
	}
	return owner.scales() &&
		r.byOwner[uid] == c.counted && c.counted <= owner.Observed && owner.Observed <= c.pods
}

// scales reports whether the numbers in a workload's scale are known, and count.
func (o Owner) scales() bool { return o.Scale && !o.Terminating && !o.Uncounted }

// coversBelow reports whether the rule covers a ReplicaSet of a workload that is counted by its scale.
func (n *namespace) coversBelow(r *ruleset, uid types.UID) bool {
	for below := range r.covered {
		if owner := n.owners[below]; owner.Controller == uid && !n.isTop(owner) {
			return true
		}
	}
	return false
}

// desired returns the number of pods that percentages refer to: the desired number of each
// workload that counts for the rule and that is at the top of an owner chain, whether or not
// the pods exist, and one for each other pod. Beside a workload a stray is not desired: it would use up the
// maxUnavailable of the workload for ever.
func (n *namespace) desired(r *ruleset) int {
	total, scaled := r.counted, map[types.UID]bool{}
	if len(r.covered) > 0 {
		total -= r.strays
	}
	for uid := range r.covered {
		owner := n.owners[uid]
		if n.isPending(uid) {
			continue
		}
		if n.isTop(owner) {
			total += owner.Desired
		} else if above := n.owners[owner.Controller]; above.Scale && !scaled[above.UID] {
			scaled[above.UID] = true
			total += above.Desired
		}
	}
	for uid, pods := range r.byOwner {
		top, counted := n.countedOwner(r, uid)
		if !counted {
			continue
		}
		total -= pods
		if owner := n.owners[top]; owner.Scale && top == uid {
			total += owner.Desired
		}
	}
	return total
}

// countedOwner returns the top of a controller's owner chain, and whether its desired number counts
// for the rule.
func (n *namespace) countedOwner(r *ruleset, controller types.UID) (top types.UID, counted bool) {
	top, known := n.top(controller)
	switch {
	case !known || n.isPending(controller):
		return "", false
	case n.owners[top].Scale && top != controller:
		return top, r.covered[controller]
	default:
		return top, n.isCounted(r, top)
	}
}

// isTop reports whether the owner of this owner is not in the index, or counted by its scale: the
// replicas of an owner of workloads need not be pods. The replicas of an owner of ReplicaSets are,
// such as those of an Argo Rollout: while it changes the numbers of two ReplicaSets, their sum is any number.
func (n *namespace) isTop(owner Owner) bool {
	above, known := n.owners[owner.Controller]
	return !known || above.Scale && (!above.scales() || owner.Kind != kindReplicaSet)
}

// top returns the last owner of a chain that is in the index. It returns false when the first
// is not, and for a cycle.
func (n *namespace) top(uid types.UID) (types.UID, bool) {
	owner, known := n.owners[uid]
	for range maxOwnerDepth {
		if !known || n.isTop(owner) {
			return owner.UID, known
		}
		owner = n.owners[owner.Controller]
	}
	return "", false
}

const (
	kindReplicaSet  = "ReplicaSet"
	kindDeployment  = "Deployment"
	kindStatefulSet = "StatefulSet"
	kindDaemonSet   = "DaemonSet"
)

// maxOwnerDepth bounds the length of a chain, since owners may form a cycle.
const maxOwnerDepth = 8

// controlled are the pods of one controller.
type controlled struct {
	pods int

	// counted are the pods that are neither terminating nor finished, available the available ones.
	counted, available int

	// finished are the pods that have succeeded or failed and are not terminating.
	finished int

	// permitted are the pods that an operation is permitted on, or that are operated on; leaving are the counted ones
	// whose deletion is.
	permitted, leaving int

	// top is the UID of the owner that rules see of the pods: the top of the chain, or the
	// controller itself while its owner is not in the index.
	top types.UID

	// cause is why the controller deletes a pod.
	cause rule.Cause

	// revisions are the revisions of its pods.
	revisions revisions
}

// deletionCause returns why a controller deletes one of its pods; empty when it is not a ReplicaSet
// in the index.
func (n *namespace) deletionCause(controller types.UID) rule.Cause {
	owner, known := n.owners[controller]
	switch {
	case !known || owner.Kind != kindReplicaSet:
		return ""
	case owner.Controller != "" && owner.Revision < n.newest[owner.Controller]:
		return rule.CauseRollout
	default:
		return rule.CauseScaleIn
	}
}

// waitingOwner is the controller of a waiting pod.
type waitingOwner struct {
	// replaces is the StatefulSet or DaemonSet; nil for another kind.
	replaces deferreddelete.Owner
}

// waitingOwners returns the controllers of waiting pods, and the workloads that rules see as their owners, if their numbers are
// known.
func (n *namespace) waitingOwners(waiting []rule.Request) (map[types.UID]waitingOwner, map[types.UID]rule.Workload) {
	controllers, workloads := map[types.UID]waitingOwner{}, map[types.UID]rule.Workload{}
	for _, request := range waiting {
		p := n.pods[request.Pod.UID]
		if p == nil {
			continue
		}
		uid := p.controller.UID
		c := n.controllers[uid]
		if _, known := controllers[uid]; known || c == nil {
			continue
		}
		owner := n.owners[uid]
		controllers[uid] = waitingOwner{
			replaces: owner.Replaces,
		}
		if top, known := n.owners[c.top]; known && !top.Uncounted {
			newest := n.owners[n.newestReplicaSet[c.top]]
			workloads[c.top] = rule.Workload{
				Desired: top.Desired, Paused: top.Paused, Revision: cmp.Or(top.UpdateRevision, revisionHash(newest.TemplateLabels)),
			}
		}
	}
	return controllers, workloads
}

// noteNewest updates the newest revision of each Deployment, and its ReplicaSet.
func (n *namespace) noteNewest() {
	n.newest, n.newestReplicaSet = map[types.UID]int64{}, map[types.UID]types.UID{}
	for _, owner := range n.owners {
		if owner.Controller != "" && owner.Revision >= n.newest[owner.Controller] {
			n.newest[owner.Controller], n.newestReplicaSet[owner.Controller] = owner.Revision, owner.UID
		}
	}
	n.noteOldest()
}

// topmostOwner returns the UID of the owner that rules see for a controller's pods.
func (n *namespace) topmostOwner(controller types.UID) types.UID {
	if top, known := n.top(controller); known {
		return top
	}
	return controller
}

// findOwner returns the owner that rules see of a pod with this controller.
func (n *namespace) findOwner(controller rule.Owner) rule.Owner {
	top := n.topmostOwner(controller.UID)
	if top == controller.UID {
		return controller
	}
	owner := n.owners[top]
	return rule.Owner{Kind: owner.Kind, Name: owner.Name, UID: owner.UID}
}

// own adds the pod to its controller's number of pods, or subtracts it. It reports whether it
// is the first or the last pod.
func (n *namespace) own(p *pod, by int) (changed bool) {
	controller := p.controller.UID
	if controller == "" {
		return false
	}
	c, ok := n.controllers[controller]
	if !ok {
		c = &controlled{top: n.topmostOwner(controller), cause: n.deletionCause(controller), revisions: n.workloadRevisions(controller)}
		n.controllers[controller] = c
	}
	c.pods += by
	if p.controller.Kind == kindPod {
		n.ledPods += by
	}
	if p.counts {
		c.counted += by
	}
	if p.finished {
		c.finished += by
	}
	if p.leaves {
		c.leaving += by
	}
	if p.fact.Available {
		c.available += by
	}
	if p.fact.Permitted {
		c.permitted += by
	}
	if c.pods == 0 {
		delete(n.controllers, controller)
	}
	return !ok || c.pods == 0
}

// ownersChanged replaces the entries of the pods whose owner or cause has changed. It visits all
// controllers, and all pods only if one of the controllers has another top: when a workload is
// added after its pods, or deleted before them.
func (n *namespace) ownersChanged() {
	n.noteNewest()
	moved := map[types.UID]bool{}
	for uid, c := range n.controllers {
		now := *c
		now.top, now.cause, now.revisions = n.topmostOwner(uid), n.deletionCause(uid), n.workloadRevisions(uid)
		if now != *c {
			*c, moved[uid] = now, true
		}
	}
	if len(moved) == 0 {
		return
	}
	for _, p := range n.pods {
		if moved[p.controller.UID] {
			n.replace(p.withOwner(n.findOwner(p.controller), n.deletionCause(p.controller.UID), n.workloadRevisions(p.controller.UID)))
		}
	}
}

// replace replaces the entry of a pod by an entry that differs in owner, cause and revision only, which no
// count depends on.
func (n *namespace) replace(p *pod) {
	uid := p.fact.UID
	n.pods[uid] = p
	if n.waiting.has(uid) {
		n.waiting.put(p)
	}
	for _, b := range n.disruptions {
		if b.selected[uid] != nil {
			b.selected[uid] = p
		}
		if b.waiting.has(uid) {
			b.waiting.put(p)
		}
	}
	for _, r := range n.rules {
		if r.selected[uid] != nil {
			r.selected[uid] = p
		}
		if r.waiting.has(uid) {
			r.waiting.put(p)
		}
	}
}
