package podindex

import (
	"cmp"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/core/rule"
)

// kept returns the waiting pods that their workloads keep for now:
//   - those of DaemonSets and StatefulSets while so many others are unavailable, or go before them. A pod that is unavailable
//     is not kept.
//   - those of a ReplicaSet beyond the number that it has too many. Where it has pods without the control label, each pod begins
//     that its controller requests, and that may request another pod before it sees that the first one goes.
func (n *namespace) kept(waiting []rule.Request) map[types.UID]bool {
	kept := map[types.UID]bool{}
	for owner, pods := range n.surplus(waiting) {
		for _, p := range pods[min(len(pods), max(0, n.excess(owner))):] {
			kept[p.fact.UID] = true
		}
	}
	for owner, pods := range n.replaced(waiting) {
		unavailable := n.unavailable(owner)
		for _, p := range pods {
			if deferreddelete.MayLose(n.owners[owner].Replaces, unavailable) {
				unavailable++
			} else {
				kept[p.fact.UID] = true
			}
		}
	}
	return kept
}

// surplus returns the pods that wait for a deletion which has begun for their ReplicaSet, by its UID, in the order in which they go:
// unavailable pods first, and the oldest request first. Pods of an old ReplicaSet that has no pod without the control label are
// left out: its spec.replicas follows the permits.
func (n *namespace) surplus(waiting []rule.Request) map[types.UID][]*pod {
	surplus := map[types.UID][]*pod{}
	for _, request := range waiting {
		p := n.pods[request.Pod.UID]
		if p == nil || !p.surplus || request.ID != appsv1alpha1.PodDeleteID {
			continue
		}
		uid := p.controller.UID
		c, owner := n.controllers[uid], n.owners[uid]
		if c == nil || owner.Kind != kindReplicaSet || owner.Terminating || c.cause != rule.CauseScaleIn && owner.unlabeled(c.counted) == 0 {
			continue
		}
		surplus[uid] = append(surplus[uid], p)
	}
	for _, pods := range surplus {
		slices.SortStableFunc(pods, func(a, b *pod) int { return cmp.Compare(availability(a), availability(b)) })
	}
	return surplus
}

func availability(p *pod) int {
	if p.fact.Available {
		return 1
	}
	return 0
}

// excess returns how many pods a ReplicaSet has beyond spec.replicas, without those whose deletion is permitted.
func (n *namespace) excess(uid types.UID) int {
	c := n.controllers[uid]
	return c.counted + n.others(uid) - n.owners[uid].Desired - c.leaving
}

// others returns how many pods a ReplicaSet has without the control label, as replicasetscale.Others does.
func (n *namespace) others(uid types.UID) int {
	c, owner := n.controllers[uid], n.owners[uid]
	if appsv1alpha1.IsControlled(owner.TemplateLabels) {
		return owner.unlabeled(c.counted)
	}
	return owner.unlabeled(c.pods - c.finished)
}

// unlabeled returns how many pods a ReplicaSet has beside so many with the control label, by its status.
func (o Owner) unlabeled(counted int) int { return max(0, min(o.Observed-counted, o.Unlabeled)) }

// replaced returns the available pods that a rolling update is to replace and that wait for it, by the UID of their DaemonSet
// or StatefulSet, in the order in which they go: oldest first, those of a StatefulSet by their ordinals.
func (n *namespace) replaced(waiting []rule.Request) map[types.UID][]*pod {
	replaced := map[types.UID][]*pod{}
	for _, request := range waiting {
		p := n.pods[request.Pod.UID]
		if p == nil || p.pending == nil || request.ID != appsv1alpha1.PodDeleteID || !request.Pod.Available {
			continue
		}
		// Any user may have recorded the request, also on a pod without a controller.
		uid := p.controller.UID
		if replaces := n.owners[uid].Replaces; replaces != nil && n.controllers[uid] != nil && deferreddelete.Rolls(replaces, p.object) {
			replaced[uid] = append(replaced[uid], p)
		}
	}
	for uid, pods := range replaced {
		if _, ok := n.owners[uid].Replaces.(*appsv1.StatefulSet); ok {
			slices.SortStableFunc(pods, func(a, b *pod) int { return deferreddelete.CompareOrdinals(b.object, a.object) })
		}
	}
	return replaced
}

// unavailable returns how many pods of a DaemonSet or StatefulSet a rolling update takes for unavailable. That of a StatefulSet
// whose pods are managed in parallel waits for pods that it replaces only.
func (n *namespace) unavailable(uid types.UID) int {
	owner, c := n.owners[uid], n.controllers[uid]
	if set, ok := owner.Replaces.(*appsv1.StatefulSet); ok && set.Spec.PodManagementPolicy == appsv1.ParallelPodManagement {
		return c.permitted
	}
	unavailable := c.pods - c.available
	if appsv1alpha1.IsControlled(owner.TemplateLabels) { // other pods are known, so that a missing one is, too
		unavailable = max(unavailable, owner.Desired-c.available-len(n.uncontrolled[uid]))
	}
	return unavailable
}
