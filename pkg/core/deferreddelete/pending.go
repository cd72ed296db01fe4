package deferreddelete

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/runtime/text"
)

const (
	// maxPendingBytes bounds the annotation that is parsed; maxUserBytes the name in it.
	maxPendingBytes, maxUserBytes = 4 << 10, 256

	// repeatedAfter is the least time between two requests of a client. The API server sends another
	// review of a delete that was held if the pod has changed meanwhile.
	repeatedAfter = time.Second
)

// Pending returns the record of a pod's pending delete. It returns false if the pod has
// no record, and if the record is of another pod or an earlier lifecycle.
func Pending(pod *corev1.Pod) (appsv1alpha1.PendingDelete, bool) {
	record, ok := recordOn(pod)
	if !ok || record.Since == "" || record.Since != Begun(pod) {
		return appsv1alpha1.PendingDelete{}, false
	}
	return record, true
}

// recordOn returns the record on a pod; false if it has none, or that of another pod.
func recordOn(pod *corev1.Pod) (appsv1alpha1.PendingDelete, bool) {
	var record appsv1alpha1.PendingDelete
	value := pod.Annotations[appsv1alpha1.PendingDeleteAnnotationKey]
	if value == "" || len(value) > maxPendingBytes {
		return record, false
	}
	err := json.Unmarshal([]byte(value), &record)
	return record, err == nil && record.UID == pod.UID
}

// HandOver returns the record of a request that the leader is to begin: of a lifecycle that has not begun.
func (d Request) HandOver(pod *corev1.Pod, now time.Time) appsv1alpha1.PendingDelete {
	record := d.Begin(pod, "")
	record.Seen = now.UnixNano()
	return record
}

// HandedOver returns the request that the leader is to begin, and the time at which it was recorded; false for a pod without one.
func HandedOver(pod *corev1.Pod) (request Request, at time.Time, ok bool) {
	record, ok := recordOn(pod)
	if !ok || record.Since != "" || IsDeferred(pod.Labels) {
		return Request{}, time.Time{}, false
	}
	request = Request{Method: Method(record.Method), Actor: Actor(record.Actor), User: record.User, OwnerGeneration: record.OwnerGeneration}
	request.Groups, request.GroupsTruncated = record.Groups, record.GroupsTruncated
	return request, LastSeen(record), true
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

	// Groups are the groups of the user, bounded by lifecycle.BoundGroups, and GroupsTruncated is true if some are missing.
	Groups          []string
	GroupsTruncated bool

	// OwnerGeneration is the generation of the pod's owner, 0 if it is not known.
	OwnerGeneration int64

	// Interval is the time since the user's request before, if that was answered and has lapsed; 0 if it is not known.
	Interval time.Duration
}

// Begin returns the record of a request with which a lifecycle begins. since is the value of its
// label operating.
func (d Request) Begin(pod *corev1.Pod, since string) appsv1alpha1.PendingDelete {
	return appsv1alpha1.PendingDelete{
		UID: pod.UID, Since: since, Method: string(d.Method), Actor: string(d.Actor), User: prefixed(d.User),
		Groups: d.Groups, GroupsTruncated: d.GroupsTruncated, OwnerGeneration: d.OwnerGeneration, Interval: d.Interval.Nanoseconds(),
	}
}

// prefixed returns the name of a user as a record has it.
func prefixed(user string) string { return text.Prefix(user, maxUserBytes) }

// Stronger reports whether a request replaces another request for the same pod. That of an owner is
// compared with its surplus, so it replaces no other.
func (d Request) Stronger(than Request) bool {
	strength := []Actor{ActorOwner, ActorController, ActorEvictor, ActorClient, ActorLabel}
	return slices.Index(strength, d.Actor) > slices.Index(strength, than.Actor)
}

// Join adds a request to the pending delete of a pod that has begun the lifecycle pod-delete. It
// returns the record to write, and false if nothing has to be written. The request of an owner stays
// in place, which counts as surplus there. A lifecycle that another controller began gets a record for
// the label to-delete only: a request that is repeated needs none.
func (d Request) Join(pod *corev1.Pod, now time.Time) (appsv1alpha1.PendingDelete, bool) {
	record, ok := Pending(pod)
	recorded := Actor(record.Actor)
	switch {
	case d.Actor == ActorLabel && recorded != ActorLabel:
		joined := d.Begin(pod, Begun(pod))
		joined.Seen = now.UnixNano() // the lifecycle is older than the request
		return joined, true
	case !ok:
		return record, false
	case d.Actor == ActorOwner && recorded == ActorOwner && d.OwnerGeneration > record.OwnerGeneration:
		record.OwnerGeneration, record.Seen = d.OwnerGeneration, now.UnixNano()
		return record, true
	case d.Supersedes(pod):
		joined := d.Begin(pod, Begun(pod))
		joined.Seen = now.UnixNano()
		return joined, true
	case recorded != ActorLabel && (recorded != ActorOwner || d.Actor == ActorOwner && OwnerKind(pod) == kindJob):
		return repeated(record, Waits(record) && !IsPermitted(pod) && Verdicts[any](pod.Annotations) == nil, now)
	default:
		return record, false
	}
}

// Supersedes reports whether a request takes the place of the pending one, which has been refused: that of another client, about
// which rules may decide otherwise.
func (d Request) Supersedes(pod *corev1.Pod) bool {
	record, ok := Pending(pod)
	if !ok || IsPermitted(pod) || Verdicts[any](pod.Annotations) == nil {
		return false
	}
	other := d.Begin(pod, record.Since)
	return Waits(record) && Waits(other) && !SameRequest(record, other)
}

// SameRequest reports whether two records are of the same request by the same client.
func SameRequest(a, b appsv1alpha1.PendingDelete) bool {
	return a.User == b.User && a.Actor == b.Actor && a.Method == b.Method
}

// Verdicts returns the annotations that explain why a pod waits, each with no value: the change that removes them; nil without any.
func Verdicts[V any](annotations map[string]string) map[string]V {
	var verdicts map[string]V
	for key := range annotations {
		if !strings.HasPrefix(key, appsv1alpha1.DetailAnnotationPrefix+"/") {
			continue
		}
		if verdicts == nil {
			verdicts = map[string]V{}
		}
		verdicts[key] = *new(V)
	}
	return verdicts
}

// repeated returns the record of a request that is repeated, and whether it has to be written: for the first time, while its client
// waits for a verdict, and so often that it does not lapse while one repetition is lost. Clients that repeat it every few seconds have
// it written after half of the time in which it lapses.
func repeated(record appsv1alpha1.PendingDelete, waits bool, now time.Time) (appsv1alpha1.PendingDelete, bool) {
	since, lapse := now.Sub(LastSeen(record)), State{Record: record, Withheld: true}.lapse()
	switch {
	case since < repeatedAfter:
		return record, false
	case record.Seen == 0:
		record.Interval = since.Nanoseconds()
	case !waits && since < min(lapse/2, lapse-time.Duration(record.Interval)*5/2):
		return record, false
	}
	record.Seen = now.UnixNano()
	return record, true
}

// Remembers reports whether a leader may remember a request instead of writing its record: a repetition for a pod that is
// prepared, which changes nothing but the time. Another leader waits for the next repetition before the request lapses.
func Remembers(pod *corev1.Pod, record appsv1alpha1.PendingDelete) bool {
	last, ok := Pending(pod)
	record.Seen = last.Seen
	return ok && last.Seen != 0 && Encode(last) == Encode(record) && IsPermitted(pod)
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
func OfOwner(pod *corev1.Pod) bool { return isBegunBy(pod, ActorOwner) }

// OfReplicaSet reports whether a ReplicaSet controls the pod.
func OfReplicaSet(pod *corev1.Pod) bool { return OwnerKind(pod) == kindReplicaSet }

// OfDaemonSet reports whether a DaemonSet controls the pod.
func OfDaemonSet(pod *corev1.Pod) bool { return OwnerKind(pod) == kindDaemonSet }

// Finishes reports whether PodOps itself carries out the pending delete of a pod, so that the
// label operate would have no reader: for the label to-delete, and for StatefulSets, whose controller
// does not delete a pod again that is unready.
func Finishes(pod *corev1.Pod) bool {
	record, ok := Pending(pod)
	if !ok {
		return false
	}
	return Actor(record.Actor) == ActorLabel || Actor(record.Actor) == ActorOwner && OwnerKind(pod) == kindStatefulSet
}
