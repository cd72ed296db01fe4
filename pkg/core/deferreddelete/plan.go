package deferreddelete

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/replicasetscale"
)

// Plan contains the pods of one owner that have a deferred delete.
type Plan struct {
	// Keep are pods that the owner still has too many of: they are deleted as soon as an
	// operation on them is allowed.
	Keep []*corev1.Pod

	// Cancel are pods that the owner needs again, or always needed, and pods that have ended, which it does not delete. Their
	// deletes are cancelled after a while: the owner may be about to repeat the delete.
	Cancel []*corev1.Pod

	// Free is the number of further deletes that the owner may begin.
	Free int

	// Mixed is true if some pods of the owner are not controlled. Its controller may remove those at once, so
	// only its own requests say which of the controlled pods are to be deleted.
	Mixed bool
}

// PlanFor compares the deferred deletes of a ReplicaSet with the number of pods that it has too many. target is the
// number that it is to have, others the number of its pods without the control label; pods are those with it, in any order. The deletes
// with the most progress are kept first: cancelling them would waste the most.
func PlanFor(target, others int, pods []*corev1.Pod) Plan {
	active := 0
	var deferred, ended []*corev1.Pod
	for _, pod := range pods {
		isActive := replicasetscale.IsActive(pod)
		if isActive {
			active++
		}
		switch {
		case !ForReplicaSet(pod):
		case isActive:
			deferred = append(deferred, pod)
		case pod.DeletionTimestamp == nil:
			ended = append(ended, pod)
		}
	}
	slices.SortFunc(deferred, func(a, b *corev1.Pod) int {
		return cmp.Or(
			cmp.Compare(progress(b.Labels), progress(a.Labels)),
			strings.Compare(Begun(a), Begun(b)),
			strings.Compare(a.Name, b.Name),
		)
	})
	excess := max(0, active+others-target)
	keep := min(excess, len(deferred))
	return Plan{Keep: deferred[:keep], Cancel: append(deferred[keep:], ended...), Free: excess - keep, Mixed: others > 0}
}

// ForReplicaSet reports whether the delete in progress was begun for the ReplicaSet that controls the pod: its controller
// requested it, or its scale-down. A client that requests the delete, too, keeps it in progress.
func ForReplicaSet(pod *corev1.Pod) bool {
	if record, ok := Pending(pod); ok {
		return Actor(record.Actor) == ActorOwner
	}
	return IsDeferred(pod.Labels) && replicasetscale.IsBegun(pod)
}

// progress returns how far the lifecycle pod-delete has advanced.
func progress(labels map[string]string) int {
	for i, prefix := range []string{appsv1alpha1.PreCheckLabelPrefix, appsv1alpha1.PrepareLabelPrefix, appsv1alpha1.OperateLabelPrefix} {
		if _, ok := labels[prefix+"/"+appsv1alpha1.PodDeleteID]; ok {
			return i + 1
		}
	}
	return 0
}

// IsPermitted reports whether the rules have permitted the delete of a pod: its traffic is off, or goes off.
func IsPermitted(pod *corev1.Pod) bool { return progress(pod.Labels) > 1 }

// Begun returns the begin of a pod's lifecycle pod-delete, in nanoseconds; empty for a pod
// without that lifecycle.
func Begun(pod *corev1.Pod) string {
	return pod.Labels[appsv1alpha1.OperatingLabelPrefix+"/"+appsv1alpha1.PodDeleteID]
}

// MayBegin reports whether the owner may begin the delete of one more pod.
func (p Plan) MayBegin(uid types.UID) bool {
	return p.Free > 0 && !slices.ContainsFunc(p.Cancel, func(pod *corev1.Pod) bool { return pod.UID == uid })
}
