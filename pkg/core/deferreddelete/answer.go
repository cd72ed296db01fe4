package deferreddelete

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
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
	return Waits(record) || Actor(record.Actor) == ActorController
}

// Waits reports whether the client of a request waits for its answer, and repeats a request that was held: a pod whose rules have
// withheld it gets no permit before.
func Waits(record appsv1alpha1.PendingDelete) bool {
	return Actor(record.Actor) == ActorEvictor || Actor(record.Actor) == ActorClient
}

// Refusal is what a replica remembers of a user's request for a pod.
type Refusal struct {
	// Refused is true if the last request was answered with 429, and no later one waits.
	Refused bool

	// Age is the time since the answer.
	Age time.Duration
}

// beginWithin is the time within which the lifecycle of a request begins, and a cache shows it.
const beginWithin = 5 * time.Second

// Requester is a user with requests for pods of one controller, and how they were answered. The answers of other
// replicas follow from the pods.
type Requester struct {
	User string

	// Refusal returns what this replica remembers of the user's request for a pod.
	Refusal func(*corev1.Pod) Refusal

	// Withheld reports whether rules withhold a pod.
	Withheld func(*corev1.Pod) bool

	// Wait is for how long a request waits for its answer.
	Wait time.Duration
}

// Unrepeated returns the pod of the same controller whose removal a user has requested, was refused and has
// not repeated; nil for no pod. Such a user looks for any pod that may go, and would be granted each of
// them.
func (r Requester) Unrepeated(pod *corev1.Pod, siblings []*corev1.Pod, now time.Time) *corev1.Pod {
	controller := metav1.GetControllerOfNoCopy(pod)
	if controller == nil || IsRequestedBy(pod, r.User) {
		return nil
	}
	for _, sibling := range siblings {
		owner := metav1.GetControllerOfNoCopy(sibling)
		if owner == nil || owner.UID != controller.UID || sibling.UID == pod.UID || sibling.DeletionTimestamp != nil {
			continue
		}
		if r.awaitsRepeat(sibling, now) {
			return sibling
		}
	}
	return nil
}

// awaitsRepeat reports whether the user was refused the removal of a pod, which is pending, and has not repeated the request.
func (r Requester) awaitsRepeat(pod *corev1.Pod, now time.Time) bool {
	refusal := r.Refusal(pod)
	if !IsRequestedBy(pod, r.User) {
		return refusal.Refused && refusal.Age < beginWithin && !IsDeferred(pod.Labels)
	}
	record, _ := Pending(pod)
	since := now.Sub(LastSeen(record))
	answered := refusal.Refused && refusal.Age < since+beginWithin
	return record.Seen == 0 && (answered || r.Withheld(pod) || since >= r.Wait)
}

// IsRequestedBy reports whether the pending delete of a pod is that of a user who repeats it.
func IsRequestedBy(pod *corev1.Pod, user string) bool {
	record, ok := Pending(pod)
	return ok && Heard(pod) && record.User == prefixed(user)
}
