package deferreddelete

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MaxWait is the longest time for which a request waits in admission.
const MaxWait = 13 * time.Second

// Heard reports whether the verdict of the rules on the pending delete of a pod is to be recorded at once:
// a client waits for it.
func Heard(pod *corev1.Pod) bool {
	record, ok := Pending(pod)
	if !ok {
		return false
	}
	actor := Actor(record.Actor)
	return actor == ActorEvictor || actor == ActorClient || actor == ActorController
}

// Unrepeated returns the pod of the same controller whose removal a user has requested, was refused and has
// not repeated; nil for no pod. Such a user looks for any pod that may go, and would be granted each of
// them. withheld reports whether rules withhold a pod.
func Unrepeated(pod *corev1.Pod, siblings []*corev1.Pod, user string, withheld func(*corev1.Pod) bool, now time.Time) *corev1.Pod {
	controller := metav1.GetControllerOfNoCopy(pod)
	if controller == nil || IsRequestedBy(pod, user) {
		return nil
	}
	for _, sibling := range siblings {
		owner := metav1.GetControllerOfNoCopy(sibling)
		if owner == nil || owner.UID != controller.UID || sibling.UID == pod.UID || sibling.DeletionTimestamp != nil || !IsRequestedBy(sibling, user) {
			continue
		}
		record, _ := Pending(sibling)
		if record.Seen == 0 && (withheld(sibling) || now.Sub(LastSeen(record)) > MaxWait) {
			return sibling
		}
	}
	return nil
}

// IsRequestedBy reports whether the pending delete of a pod is that of a user who repeats it.
func IsRequestedBy(pod *corev1.Pod, user string) bool {
	record, ok := Pending(pod)
	return ok && Heard(pod) && record.User == prefixed(user)
}
