package deferreddelete

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/text"
)

const (
	// maxPendingBytes bounds the annotation that is parsed; maxUserBytes the name in it.
	maxPendingBytes, maxUserBytes = 4 << 10, 256

	// seenInterval is the least time between two writes that an eviction was repeated.
	seenInterval = EvictionLapse / 4
)

// Pending returns the record of the pending delete of a pod. It returns false if the pod has
// no record, and if the record is of another pod or of an earlier lifecycle.
func Pending(pod *corev1.Pod) (appsv1alpha1.PendingDelete, bool) {
	value := pod.Annotations[appsv1alpha1.PendingDeleteAnnotationKey]
	if value == "" || len(value) > maxPendingBytes {
		return appsv1alpha1.PendingDelete{}, false
	}
	var record appsv1alpha1.PendingDelete
	if err := json.Unmarshal([]byte(value), &record); err != nil {
		return appsv1alpha1.PendingDelete{}, false
	}
	if record.UID != pod.UID || record.Since == "" || record.Since != Begun(pod) {
		return appsv1alpha1.PendingDelete{}, false
	}
	return record, true
}

// Encode returns the value of the annotation.
func Encode(record appsv1alpha1.PendingDelete) string {
	value, err := json.Marshal(record)
	if err != nil {
		return "" // no value of the type is invalid
	}
	return string(value)
}

// Request is a delete or an eviction of a pod, as its review shows it.
type Request struct {
	Method Method
	Actor  Actor
	User   string

	// OwnerGeneration is the generation of the owner of the pod, 0 if it is not known.
	OwnerGeneration int64

	GracePeriodSeconds *int64
	PropagationPolicy  *string
}

// Begin returns the record of a request with which a lifecycle begins. since is the value of its
// label operating.
func (d Request) Begin(pod *corev1.Pod, since string) appsv1alpha1.PendingDelete {
	return appsv1alpha1.PendingDelete{
		UID: pod.UID, Since: since, Method: string(d.Method), Actor: string(d.Actor), User: text.Prefix(d.User, maxUserBytes),
		OwnerGeneration: d.OwnerGeneration, GracePeriodSeconds: d.GracePeriodSeconds, PropagationPolicy: d.PropagationPolicy,
	}
}

// Stronger reports whether a request replaces another request for the same pod. A client does not
// repeat its request, so no other request may end it.
func (d Request) Stronger(than Request) bool {
	strength := []Actor{ActorOwner, ActorEvictor, ActorLabel, ActorClient}
	return slices.Index(strength, d.Actor) > slices.Index(strength, than.Actor)
}

// Join adds a request to the pending delete of a pod that has begun the lifecycle pod-delete. It
// returns the record to write, and false if nothing has to be written. An eviction leaves the
// request of the owner in place, which counts as surplus there: its client repeats it.
func (d Request) Join(pod *corev1.Pod, now time.Time) (appsv1alpha1.PendingDelete, bool) {
	record, ok := Pending(pod)
	switch {
	case !ok && d.Actor == ActorEvictor || !ok && d.Actor == ActorOwner:
		return record, false // another controller operates on the pod; the client repeats its request
	case !ok || d.Actor != ActorEvictor && d.Stronger(Request{Actor: Actor(record.Actor)}):
		joined := d.Begin(pod, Begun(pod))
		joined.Seen = now.UnixNano() // the lifecycle is older than the request
		return joined, true
	case Actor(record.Actor) != d.Actor:
		return record, false
	case d.Actor == ActorEvictor && now.Sub(LastSeen(record)) >= seenInterval:
		record.Seen = now.UnixNano()
		return record, true
	case d.Actor == ActorOwner && d.OwnerGeneration > record.OwnerGeneration:
		record.OwnerGeneration = d.OwnerGeneration
		return record, true
	default:
		return record, false
	}
}

// LastSeen returns when a pending delete was last requested.
func LastSeen(record appsv1alpha1.PendingDelete) time.Time {
	if record.Seen != 0 {
		return time.Unix(0, record.Seen)
	}
	nanos, err := strconv.ParseInt(record.Since, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(0, nanos)
}

// OfOwner reports whether the delete in progress was begun for the controller that owns the pod.
// A lifecycle that another controller began is neither finished nor cancelled.
func OfOwner(pod *corev1.Pod) bool {
	record, ok := Pending(pod)
	return ok && Actor(record.Actor) == ActorOwner
}

// OfReplicaSet reports whether a ReplicaSet controls the pod.
func OfReplicaSet(pod *corev1.Pod) bool { return OwnerKind(pod) == kindReplicaSet }

// Finishes reports whether PodOps itself carries out the pending delete of a pod, so that the
// label operate would have no reader. The controllers of ReplicaSets, DaemonSets and Jobs delete the
// pod themselves once it may be operated on: the controller of ReplicaSets is woken by the label,
// and only the others can decide whether the pod must still be deleted.
func Finishes(pod *corev1.Pod) bool {
	record, ok := Pending(pod)
	if !ok {
		return false
	}
	if Actor(record.Actor) != ActorOwner {
		return true
	}
	return OwnerKind(pod) == kindStatefulSet
}
