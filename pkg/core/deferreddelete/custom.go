package deferreddelete

import (
	corev1 "k8s.io/api/core/v1"
)

// MayFollow reports whether the delete of a pod begins that the controller of a custom owner has requested. With each refusal
// such a controller may name another pod, and PodOps knows neither how many it wants to remove nor how many may be unavailable: the pods of
// an owner begin one after the other. instead is a waiting pod whose delete ends first, since rules withhold it; nil for none.
func MayFollow(pod *corev1.Pod, owned OwnedPods) (may bool, instead *corev1.Pod) {
	for _, other := range owned.Pods {
		switch {
		case other.UID == pod.UID || other.DeletionTimestamp != nil || !isBegunBy(other, ActorController) && !owned.Begun(other):
			continue
		case instead != nil || waitsFor(other, ActorController, owned.Now) < ReplaceAnotherAfter || !owned.Withheld(other):
			return false, nil
		default:
			instead = other
		}
	}
	return true, instead
}

// isBegunBy reports whether the pending delete of a pod is that of an actor.
func isBegunBy(pod *corev1.Pod, actor Actor) bool {
	record, ok := Pending(pod)
	return ok && Actor(record.Actor) == actor
}
