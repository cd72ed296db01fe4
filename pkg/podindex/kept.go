package podindex

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/deferreddelete"
	"github.com/podops-dev/podops/pkg/rule"
)

// kept returns the waiting pods of DaemonSets and StatefulSets that stay while so many others are unavailable, or go before them.
// A pod that is unavailable is not kept.
func (n *namespace) kept(waiting []rule.Request) map[types.UID]bool {
	kept := map[types.UID]bool{}
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
