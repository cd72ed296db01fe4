package facts

import (
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// Owner is a workload that controls pods, or other owners.
type Owner struct {
	UID       types.UID
	Namespace string
	Kind      string
	Name      string

	// Controller is the owner of this owner; empty for the top of the chain.
	Controller types.UID

	// Desired is how many pods it wants.
	Desired int

	// TemplateLabels are the labels of the pods that it makes.
	TemplateLabels map[string]string

	// Terminating: it is being deleted.
	Terminating bool
}

// covers: the rule speaks of the pods that the workload makes. A rule that selects two
// canaries of ten replicas does not, and has two to go by; nor does any rule when the
// pods are not made under PodOps, or the workload is on its way out: pods of it that
// are missing will never come.
func (r *rule) covers(owner Owner) bool {
	return !owner.Terminating && owner.TemplateLabels[appsv1alpha1.ControlLabelKey] == appsv1alpha1.ControlLabelValue &&
		r.selector.Matches(labels.Set(owner.TemplateLabels))
}

// desired is the number of pods that percentages are taken of: for each workload at the
// top of a chain of owners that the rule covers the replicas that it wants, whether or
// not any of them is there, and one for each other pod.
func (n *namespace) desired(r *rule) int {
	total := r.counted
	for uid := range r.covered {
		if owner := n.owners[uid]; n.isTop(owner) {
			total += owner.Desired
		}
	}
	for uid, pods := range r.byOwner {
		if top, known := n.top(uid); known && r.covered[top] {
			total -= pods
		}
	}
	return total
}

// isTop: no owner of this owner is known.
func (n *namespace) isTop(owner Owner) bool {
	_, known := n.owners[owner.Controller]
	return !known
}

// top follows the chain of owners to its last known one. It returns false when not even
// the first is known, and for a ring, which has no end.
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

// maxOwnerDepth bounds the walk, should owners form a ring.
const maxOwnerDepth = 8
