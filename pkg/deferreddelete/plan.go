package deferreddelete

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// Plan contains the pods of one owner that have a deferred delete.
type Plan struct {
	// Keep are pods that the owner still has too many of: they are deleted as soon as an
	// operation on them is allowed.
	Keep []*corev1.Pod

	// Cancel are pods that the owner needs again, or always needed. Their deletes are
	// cancelled after a while: the owner may be about to repeat the delete.
	Cancel []*corev1.Pod

	// Free is how many more deletes the owner may begin.
	Free int
}

// PlanFor compares the deferred deletes of an owner with its surplus of pods. replicas is the
// desired number; pods are all of its pods, in any order. The deletes with the most progress
// are kept first: cancelling them would waste the most.
func PlanFor(replicas int, pods []*corev1.Pod) Plan {
	active := 0
	var deferred []*corev1.Pod
	for _, pod := range pods {
		if !isActive(pod) {
			continue
		}
		active++
		if OfOwner(pod) {
			deferred = append(deferred, pod)
		}
	}
	slices.SortFunc(deferred, func(a, b *corev1.Pod) int {
		return cmp.Or(
			cmp.Compare(progress(b.Labels), progress(a.Labels)),
			strings.Compare(begun(a), begun(b)),
			strings.Compare(a.Name, b.Name),
		)
	})
	excess := max(0, active-replicas)
	keep := min(excess, len(deferred))
	return Plan{Keep: deferred[:keep], Cancel: deferred[keep:], Free: excess - keep}
}

// isActive reports whether controllers count the pod: it is neither finished nor terminating.
func isActive(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
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

func begun(pod *corev1.Pod) string {
	return pod.Labels[appsv1alpha1.OperatingLabelPrefix+"/"+appsv1alpha1.PodDeleteID]
}

// MayBegin reports whether the owner may begin the delete of one more pod.
func (p Plan) MayBegin(uid types.UID) bool {
	return p.Free > 0 && !slices.ContainsFunc(p.Cancel, func(pod *corev1.Pod) bool { return pod.UID == uid })
}
