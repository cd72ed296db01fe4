package podindex

import (
	"maps"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/rule"
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

	// Revision is the number that the controller of a Deployment gave to a ReplicaSet; 0 for
	// none. The highest one of a Deployment is the newest.
	Revision int64

	// Terminating: it is being deleted.
	Terminating bool
}

// hasPlaceOf reports whether another version of a workload has the same place in the chain of
// owners.
func (o Owner) hasPlaceOf(other Owner) bool {
	return o.Controller == other.Controller && o.Kind == other.Kind && o.Name == other.Name && o.Revision == other.Revision
}

// equals reports whether another version of a workload differs in nothing.
func (o Owner) equals(other Owner) bool {
	return o.hasPlaceOf(other) && o.Desired == other.Desired && o.Terminating == other.Terminating &&
		maps.Equal(o.TemplateLabels, other.TemplateLabels)
}

// covers: the rule speaks of the pods that the workload makes. A rule that selects two
// canaries of ten replicas does not, and has two to go by; nor does any rule when the
// pods are not made under PodOps, or the workload is on its way out: pods of it that
// are missing will never come.
func (r *ruleset) covers(owner Owner) bool {
	return !owner.Terminating && owner.TemplateLabels[appsv1alpha1.ControlLabelKey] == appsv1alpha1.ControlLabelValue &&
		r.selector.Matches(labels.Set(owner.TemplateLabels))
}

// desired is the number of pods that percentages are taken of: for each workload at the
// top of a chain of owners that the rule covers the replicas that it wants, whether or
// not any of them is there, and one for each other pod.
func (n *namespace) desired(r *ruleset) int {
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

// controlled are the pods of one controller.
type controlled struct {
	pods int

	// top is what the pods have for an owner: the UID at the top of the chain, or that
	// of the controller itself while nothing above it is known.
	top types.UID

	// cause is why the controller deletes a pod.
	cause rule.Cause
}

// causeOf is why a controller deletes one of its pods; empty when it is no ReplicaSet that
// is known.
func (n *namespace) causeOf(controller types.UID) rule.Cause {
	owner, known := n.owners[controller]
	switch {
	case !known || owner.Kind != "ReplicaSet":
		return ""
	case owner.Controller != "" && owner.Revision < n.newest[owner.Controller]:
		return rule.CauseRollout
	default:
		return rule.CauseScaleIn
	}
}

// noteNewest finds the newest revision of each Deployment.
func (n *namespace) noteNewest() {
	n.newest = map[types.UID]int64{}
	for _, owner := range n.owners {
		if owner.Controller != "" {
			n.newest[owner.Controller] = max(n.newest[owner.Controller], owner.Revision)
		}
	}
}

// topOf is the UID that pods of a controller have for an owner.
func (n *namespace) topOf(controller types.UID) types.UID {
	if top, known := n.top(controller); known {
		return top
	}
	return controller
}

// ownerOf is the owner that rules see of a pod with this controller.
func (n *namespace) ownerOf(controller rule.Owner) rule.Owner {
	top := n.topOf(controller.UID)
	if top == controller.UID {
		return controller
	}
	owner := n.owners[top]
	return rule.Owner{Kind: owner.Kind, Name: owner.Name, UID: owner.UID}
}

// own counts the pods of a controller up or down.
func (n *namespace) own(controller types.UID, by int) {
	if controller == "" {
		return
	}
	c, ok := n.controllers[controller]
	if !ok {
		c = &controlled{top: n.topOf(controller), cause: n.causeOf(controller)}
		n.controllers[controller] = c
	}
	c.pods += by
	if c.pods == 0 {
		delete(n.controllers, controller)
	}
}

// ownersChanged renews the facts of the pods that have another owner now. It costs as
// much as there are controllers, and looks at all pods only if some of them moved: when
// a workload becomes known after its pods, or is deleted before them.
func (n *namespace) ownersChanged() {
	n.noteNewest()
	moved := map[types.UID]bool{}
	for uid, c := range n.controllers {
		if top, cause := n.topOf(uid), n.causeOf(uid); top != c.top || cause != c.cause {
			c.top, c.cause, moved[uid] = top, cause, true
		}
	}
	if len(moved) == 0 {
		return
	}
	for _, p := range n.pods {
		if moved[p.controller.UID] {
			n.replace(p.withOwner(n.ownerOf(p.controller), n.causeOf(p.controller.UID)))
		}
	}
}

// replace puts an entry in place of that of the same pod, which differs in its owner and in
// the cause of its deletion alone: nothing is counted again.
func (n *namespace) replace(p *pod) {
	uid := p.fact.UID
	n.pods[uid] = p
	if n.waiting.has(uid) {
		n.waiting.put(p)
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
