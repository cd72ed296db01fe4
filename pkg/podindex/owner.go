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

	// Desired is the number of replicas in its spec.
	Desired int

	// TemplateLabels are the labels of its pod template.
	TemplateLabels map[string]string

	// Revision is the revision of a ReplicaSet of a Deployment; 0 if it has none. The newest
	// ReplicaSet of a Deployment has the highest.
	Revision int64

	// Terminating is true once it has a deletion timestamp.
	Terminating bool
}

// hasPlaceOf reports whether another version of a workload has the same controller, kind, name
// and revision.
func (o Owner) hasPlaceOf(other Owner) bool {
	return o.Controller == other.Controller && o.Kind == other.Kind && o.Name == other.Name && o.Revision == other.Revision
}

// equals reports whether another version of a workload is the same.
func (o Owner) equals(other Owner) bool {
	return o.hasPlaceOf(other) && o.Desired == other.Desired && o.Terminating == other.Terminating &&
		maps.Equal(o.TemplateLabels, other.TemplateLabels)
}

// covers reports whether the rule selects the pods of the workload's template. A rule that selects
// two canaries of ten replicas does not cover their workload, and counts two. No rule covers a
// workload whose template is not controlled by PodOps or that is terminating: its missing pods will
// not be created.
func (r *ruleset) covers(owner Owner) bool {
	return !owner.Terminating && appsv1alpha1.IsControlled(owner.TemplateLabels) &&
		r.selector.Matches(labels.Set(owner.TemplateLabels))
}

// desired returns the number of pods that percentages refer to: the replicas of each workload
// that the rule covers and that is at the top of a chain of owners, whether or not the pods
// exist, and one for each other pod.
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

// isTop reports whether the owner of this owner is not in the index.
func (n *namespace) isTop(owner Owner) bool {
	_, known := n.owners[owner.Controller]
	return !known
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

// maxOwnerDepth bounds the length of a chain, since owners may form a cycle.
const maxOwnerDepth = 8

// controlled are the pods of one controller.
type controlled struct {
	pods int

	// top is the UID of the owner that rules see of the pods: the top of the chain, or the
	// controller itself while its owner is not in the index.
	top types.UID

	// cause is why the controller deletes a pod.
	cause rule.Cause
}

// causeOf returns why a controller deletes one of its pods; empty when it is not a ReplicaSet
// in the index.
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

// noteNewest updates the newest revision of each Deployment.
func (n *namespace) noteNewest() {
	n.newest = map[types.UID]int64{}
	for _, owner := range n.owners {
		if owner.Controller != "" {
			n.newest[owner.Controller] = max(n.newest[owner.Controller], owner.Revision)
		}
	}
}

// topOf returns the UID of the owner that rules see of the pods of a controller.
func (n *namespace) topOf(controller types.UID) types.UID {
	if top, known := n.top(controller); known {
		return top
	}
	return controller
}

// ownerOf returns the owner that rules see of a pod with this controller.
func (n *namespace) ownerOf(controller rule.Owner) rule.Owner {
	top := n.topOf(controller.UID)
	if top == controller.UID {
		return controller
	}
	owner := n.owners[top]
	return rule.Owner{Kind: owner.Kind, Name: owner.Name, UID: owner.UID}
}

// own adds to the number of pods of a controller.
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

// ownersChanged replaces the entries of the pods whose owner or cause has changed. It visits all
// controllers, and all pods only if one of the controllers has another top: when a workload is
// added after its pods, or deleted before them.
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

// replace replaces the entry of a pod by an entry that differs in owner and cause only, which no
// count depends on.
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
