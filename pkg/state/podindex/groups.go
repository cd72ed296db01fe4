package podindex

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

const kindPod = "Pod"

// groups are the pods that go with other pods: the garbage collector deletes the pods of a workload that a
// pod owns after that pod, as the workers of a LeaderWorkerSet after their leader.
type groups struct {
	// with are the pods that go with a pod, by the UID of that pod, which need not be in the index.
	with map[types.UID][]*pod

	// going are the pods that go with a pod that is being deleted, or that may be deleted at any time.
	going map[types.UID]bool
}

// hasGroups reports whether a pod, or a workload of pods, is owned by a pod.
func (n *namespace) hasGroups() bool { return n.ledPods > 0 || n.ledOwners > 0 }

// groupLeader returns the pod that owns a pod, or a workload in the chain of its owners; empty without one.
func (n *namespace) groupLeader(p *pod) types.UID {
	if p.controller.Kind == kindPod {
		return p.controller.UID
	}
	owner, known := n.owners[p.controller.UID]
	for range maxOwnerDepth {
		if !known || owner.Above.Kind == kindPod {
			return owner.leader()
		}
		owner, known = n.owners[owner.Controller]
	}
	return ""
}

// led returns 1 for a workload that a pod owns, and 0 for all others.
func led(owner Owner) int {
	if owner.leader() == "" {
		return 0
	}
	return 1
}

// leader returns the pod that owns a workload; empty without one.
func (o Owner) leader() types.UID {
	if o.Above.Kind != kindPod {
		return ""
	}
	return o.Controller
}

// groups returns the groups of a namespace. It visits all of its pods, and none in a namespace without groups.
func (n *namespace) groups() groups {
	if !n.hasGroups() {
		return groups{}
	}
	g := groups{with: map[types.UID][]*pod{}, going: map[types.UID]bool{}}
	for uid, p := range n.pods {
		above := []types.UID{uid} // a cycle ends at a pod that is among them
		for leader := n.groupLeader(p); leader != "" && len(above) <= maxOwnerDepth && !slices.Contains(above, leader); {
			above = append(above, leader)
			g.with[leader] = append(g.with[leader], p)
			by, known := n.pods[leader]
			if !known || by.goes() {
				g.going[uid] = true
			}
			if !known {
				break
			}
			leader = n.groupLeader(by)
		}
	}
	return g
}

// goes reports whether a pod is being deleted, or may be deleted at any time.
func (p *pod) goes() bool {
	_, permitted := p.fact.Labels[appsv1alpha1.OperationPermissionLabelPrefix+"/"+appsv1alpha1.DeleteOperationType]
	return permitted || !p.counts && !p.finished
}

// deletes reports whether a pod waits for its deletion.
func (p *pod) deletes() bool {
	for _, request := range p.requests {
		if request.Type == appsv1alpha1.DeleteOperationType && request.Stage == appsv1alpha1.StagePreCheck {
			return true
		}
	}
	return false
}

// serves reports whether a pod counts as available for a rule, and does not go with another pod.
func (g groups) serves(r *ruleset, p *pod) bool {
	return r.selected[p.fact.UID] != nil && p.fact.Available && !g.going[p.fact.UID]
}

// countGroups counts the pods that go with others in the view of a rule: as unavailable when they go, as reserved
// when the permit of their pod is recorded, and as the size of its permit while their pod waits.
func (n *namespace) countGroups(r *ruleset, view *RuleView, g groups) {
	for uid := range g.going {
		if p := r.selected[uid]; p != nil && p.fact.Available {
			view.Counts.Available--
		}
	}
	n.countReserved(r, view, g)
	if n.ledOwners > 0 {
		view.Counts.Desired += n.awaited(r)
	}
	for leader, pods := range g.with {
		if p := n.pods[leader]; p == nil || !p.deletes() {
			continue
		}
		for _, p := range pods {
			if !g.serves(r, p) {
				continue
			}
			if view.With == nil {
				view.With = map[types.UID]int{}
			}
			view.With[leader]++
		}
	}
}

// awaited returns how many pods the workloads will want that pods are to own which are being replaced: the garbage collector
// removes such a workload with its pod, and its controller creates it again for the next pod. Without them, the pods of a group that
// is replaced would lower the bound for the pods of other groups. A pod that is available owns what it is to own.
func (n *namespace) awaited(r *ruleset) int {
	desired, orphaned := map[types.UID]int{}, 0 // by the pod that owns them; without one
	for uid := range r.covered {
		owner := n.owners[uid]
		if _, known := n.pods[owner.leader()]; known {
			desired[owner.leader()] += owner.Desired
		} else if owner.leader() != "" {
			orphaned++
		}
	}
	if len(desired) == 0 {
		return 0
	}
	size, settled := map[types.UID]int{}, map[types.UID]int{} // by the workload of the pods that own others
	for leader, pods := range desired {
		above := n.pods[leader].controller.UID
		size[above] = max(size[above], pods)
	}
	for uid, p := range n.pods {
		if _, leads := desired[uid]; leads || p.fact.Available {
			settled[p.controller.UID]++
		}
	}
	total := 0
	for above, pods := range size {
		if r.covered[above] {
			total += max(0, n.owners[above].Desired-settled[above]-orphaned) * pods
		}
	}
	return total
}

// countReserved counts the pods that go with the pods whose permits are recorded.
func (n *namespace) countReserved(r *ruleset, view *RuleView, g groups) {
	reserved := map[types.UID]bool{}
	for leader := range view.Live {
		if p := n.pods[leader]; !p.deletes() {
			continue
		}
		for _, p := range g.with[leader] {
			if _, itself := view.Live[p.fact.UID]; g.serves(r, p) && !itself && !reserved[p.fact.UID] {
				reserved[p.fact.UID] = true
				view.Counts.Reserved++
			}
		}
	}
}
