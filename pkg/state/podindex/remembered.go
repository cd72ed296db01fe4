package podindex

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// owned counts the selected pods of the workloads whose desired number is not known, or may not be
// known later, by the UID of the workload at the top of their chain. For a workload that is counted
// by its scale it is the desired number. Pods without a controller are not counted, since no
// controller replaces them.
func (n *namespace) owned(r *ruleset) map[types.UID]int {
	owned := map[types.UID]int{}
	for controller, pods := range r.byOwner {
		if controller == "" {
			continue
		}
		top, counted := n.countedOwner(r, controller)
		switch {
		case counted && r.covered[top]:
		case counted:
			owned[top] = n.owners[top].Desired
		default:
			owned[n.rememberedBy(controller)] += pods
		}
	}
	return owned
}

// rememberedBy returns the UID by which a record names the workload that a controller belongs to.
func (n *namespace) rememberedBy(controller types.UID) types.UID {
	if n.isPending(controller) {
		return n.owners[controller].Controller
	}
	return n.topmostOwner(controller)
}

// unreadable returns the workloads of the selected pods whose numbers cannot be read, sorted by kind
// and name. Nil when all can.
func (n *namespace) unreadable(r *ruleset) []Owner {
	var owners []Owner
	for controller := range r.byOwner {
		owner := n.owners[controller]
		if owner.Kind == kindReplicaSet {
			owner = n.owners[owner.Controller]
		}
		if owner.Unreadable != "" && !slices.ContainsFunc(owners, func(other Owner) bool { return other.UID == owner.UID }) {
			owners = append(owners, owner)
		}
	}
	slices.SortFunc(owners, func(a, b Owner) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name), strings.Compare(string(a.UID), string(b.UID)))
	})
	return owners
}

// podsBelow returns how many selected pods a workload and its ReplicaSets have.
func (n *namespace) podsBelow(r *ruleset, top types.UID) int {
	pods := 0
	for controller, own := range r.byOwner {
		if controller == top || n.topmostOwner(controller) == top {
			pods += own
		}
	}
	return pods
}

// remembered returns the numbers of pods in a record that still apply: the numbers of
// workloads that miss pods, or have a pod that may be deleted at any time.
func (n *namespace) remembered(
	r *ruleset, record *appsv1alpha1.PermitRecord, live map[types.UID]appsv1alpha1.ReservedPod, owned map[types.UID]int,
) map[types.UID]int {
	out := map[types.UID]bool{}
	for _, p := range r.unavailable {
		if p.fact.Permitted {
			out[n.rememberedBy(p.controller.UID)] = true
		}
	}
	for uid := range live {
		out[n.rememberedBy(n.pods[uid].controller.UID)] = true
	}
	remembered := map[types.UID]int{}
	for _, owner := range record.Owners {
		pods, there := int(owner.Pods), owned[owner.UID]
		if top, known := n.top(owner.UID); known && n.isCounted(r, top) {
			if !n.owners[top].Scale {
				continue // its desired number has become known
			}
			// The record follows the desired number, for when it cannot be read any more.
			pods, there = n.owners[top].Desired, n.podsBelow(r, top)
		}
		if pods > there || out[owner.UID] {
			remembered[owner.UID] = pods
		}
	}
	return remembered
}
