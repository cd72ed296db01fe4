package podindex

import (
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// owned counts the selected pods of the workloads that the rule does not cover, whose desired
// number is therefore not known, by the UID of the workload at the top of their chain. Pods
// without a controller are not counted, since no controller replaces them.
func (n *namespace) owned(r *ruleset) map[types.UID]int {
	owned := map[types.UID]int{}
	for controller, pods := range r.byOwner {
		if controller == "" {
			continue
		}
		if top, known := n.top(controller); known && r.covered[top] {
			continue
		}
		owned[n.topOf(controller)] += pods
	}
	return owned
}

// remembered returns the numbers of pods in a record that still apply: the numbers of workloads
// that miss pods, or have a pod that may be deleted at any time.
func (n *namespace) remembered(
	r *ruleset, record *appsv1alpha1.PermitRecord, live map[types.UID]appsv1alpha1.ReservedPod, owned map[types.UID]int,
) map[types.UID]int {
	out := map[types.UID]bool{}
	for _, p := range r.unavailable {
		if p.fact.Permitted {
			out[p.fact.Owner.UID] = true
		}
	}
	for uid := range live {
		out[n.pods[uid].fact.Owner.UID] = true
	}
	remembered := map[types.UID]int{}
	for _, owner := range record.Owners {
		if top, known := n.top(owner.UID); known && r.covered[top] {
			continue // its desired number has become known
		}
		if pods := int(owner.Pods); pods > owned[owner.UID] || out[owner.UID] {
			remembered[owner.UID] = pods
		}
	}
	return remembered
}
