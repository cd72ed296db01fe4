package permit

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
)

// countsOwner reports whether the pod belongs to a workload whose desired number of pods is
// not known.
func (b *openBudget) countsOwner(pod *rule.PodFact) bool {
	_, counts := b.owners[pod.Owner.UID]
	return counts
}

// rememberOwner records how many pods the workload has before the pod is permitted. A pod
// that is missing later counts as desired then.
func (b *openBudget) rememberOwner(pod *rule.PodFact) {
	uid := pod.Owner.UID
	if !b.countsOwner(pod) || b.remembered[uid] >= b.owners[uid] {
		return
	}
	if b.remembered == nil {
		b.remembered = map[types.UID]int{}
	}
	b.remembered[uid], b.changed = b.owners[uid], true
}

// full reports whether the record has no entry left for the pod, or for its workload.
func (b *openBudget) full(c Candidate) bool {
	pod := c.Request.Pod
	if !b.mustRecord(c) || hasUID(b.live, pod.UID) {
		return false
	}
	_, known := b.remembered[pod.Owner.UID]
	return len(b.reserved) >= appsv1alpha1.MaxStatusReserved ||
		b.countsOwner(pod) && !known && len(b.remembered) >= appsv1alpha1.MaxStatusOwners
}

func ownerPods(remembered map[types.UID]int) []appsv1alpha1.OwnerPods {
	owners := make([]appsv1alpha1.OwnerPods, 0, len(remembered))
	for uid, pods := range maps.All(remembered) {
		owners = append(owners, appsv1alpha1.OwnerPods{UID: uid, Pods: int32(pods)})
	}
	slices.SortFunc(owners, func(a, b appsv1alpha1.OwnerPods) int { return strings.Compare(string(a.UID), string(b.UID)) })
	return owners
}
