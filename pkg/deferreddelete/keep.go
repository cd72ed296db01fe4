package deferreddelete

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// Promises is what is to be done about the pods of one owner.
type Promises struct {
	// Kept are promised pods that the owner still wants gone: they are deleted as soon
	// as they may be operated on.
	Kept []*corev1.Pod

	// Unwanted are promised pods that the owner does not want gone any more, or never
	// did. They are let go once that has lasted a while: the owner may be about to
	// ask again.
	Unwanted []*corev1.Pod

	// Room is how many more promises the owner has use for.
	Room int
}

// Keep compares the promised pods of an owner with how many pods it has too many.
// replicas is what it wants; pods are all of its pods, in any order. Pods that are
// furthest along keep their promise first: to undo them would waste the most.
func Keep(replicas int, pods []*corev1.Pod) Promises {
	active := 0
	var promised []*corev1.Pod
	for _, pod := range pods {
		if !isActive(pod) {
			continue
		}
		active++
		if IsPromised(pod.Labels) {
			promised = append(promised, pod)
		}
	}
	slices.SortFunc(promised, func(a, b *corev1.Pod) int {
		return cmp.Or(
			cmp.Compare(progress(b.Labels), progress(a.Labels)),
			strings.Compare(begun(a), begun(b)),
			strings.Compare(a.Name, b.Name),
		)
	})
	excess := max(0, active-replicas)
	kept := min(excess, len(promised))
	return Promises{Kept: promised[:kept], Unwanted: promised[kept:], Room: excess - kept}
}

// isActive counts pods as their controllers do: neither finished nor terminating.
func isActive(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// progress is how far the lifecycle pod-delete has come.
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

// Wanted reports whether a promise for one more pod of the owner would be of use.
func (p Promises) Wanted(uid types.UID) bool {
	return p.Room > 0 && !slices.ContainsFunc(p.Unwanted, func(pod *corev1.Pod) bool { return pod.UID == uid })
}
