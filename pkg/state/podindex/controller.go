package podindex

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Controller is the controller of pods as their owner references name it. The object need not exist.
type Controller struct {
	Namespace  string
	APIVersion string
	Kind       string
	Name       string
	UID        types.UID
}

// WatchControllers has the index call a function with the controller of pods, and with the controller of a
// ReplicaSet of pods unless that is a Deployment, when its first pod appears, and when its last pod disappears.
// It must be called before the index is filled; the function must not call the index.
func (x *Index) WatchControllers(notify func(controller Controller, present bool)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.controllers = notify
}

// own adds the pod to its controller's number of pods, or subtracts it.
func (x *Index) own(n *namespace, p *pod, by int) {
	if !n.own(p, by) || x.controllers == nil {
		return
	}
	x.controllers(Controller{
		Namespace: p.fact.Namespace, APIVersion: p.apiVersion, Kind: p.controller.Kind, Name: p.controller.Name, UID: p.controller.UID,
	}, by > 0)
	x.referAbove(n, p.fact.Namespace)
}

// referAbove reports the controllers of ReplicaSets whose pods have appeared or disappeared.
func (x *Index) referAbove(n *namespace, name string) {
	if x.controllers == nil {
		return
	}
	above := map[types.UID]Controller{}
	for uid := range n.controllers {
		owner := n.owners[uid]
		if by := owner.Above; owner.Kind == kindReplicaSet && owner.Controller != "" && by.Kind != kindDeployment {
			above[owner.Controller] = Controller{Namespace: name, APIVersion: by.APIVersion, Kind: by.Kind, Name: by.Name, UID: owner.Controller}
		}
	}
	for uid, controller := range above {
		if _, known := n.above[uid]; !known {
			x.controllers(controller, true)
		}
	}
	for uid, controller := range n.above {
		if _, still := above[uid]; !still {
			delete(n.answered, uid)
			x.controllers(controller, false)
		}
	}
	n.above = above
}

// answer records that it is known whether the scale of a custom controller counts.
func (n *namespace) answer(uid types.UID) {
	if _, refers := n.above[uid]; !refers {
		return
	}
	if n.answered == nil {
		n.answered = map[types.UID]bool{}
	}
	n.answered[uid] = true
}

// isPending reports whether a ReplicaSet has a controller whose scale has not been read yet. Its controller may be about to change the
// numbers of its ReplicaSets, so these do not count meanwhile.
func (n *namespace) isPending(set types.UID) bool {
	above := n.owners[set].Controller
	_, refers := n.above[above]
	_, known := n.owners[above]
	return refers && !known && !n.answered[above]
}

// controllerAPIVersion returns the API version of the pod's controller; empty for a pod without a
// controller.
func controllerAPIVersion(object *corev1.Pod) string {
	if reference := metav1.GetControllerOfNoCopy(object); reference != nil {
		return reference.APIVersion
	}
	return ""
}
