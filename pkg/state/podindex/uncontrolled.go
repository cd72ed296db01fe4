package podindex

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/pkg/core/podstate"
)

// SetUncontrolled records the available pods of a workload that do not have the control label. They count for the rules that
// cover the workload, until they get the label.
func (x *Index) SetUncontrolled(namespace string, owner types.UID, pods []types.UID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	n, ok := x.namespaces[namespace]
	if !ok {
		return
	}
	if _, known := n.owners[owner]; !known {
		return
	}
	before, after := n.uncontrolled[owner], map[types.UID]bool{}
	same := true
	for _, uid := range pods {
		if n.pods[uid] == nil {
			after[uid] = true
			same = same && before[uid]
		}
	}
	if same && len(before) == len(after) {
		return
	}
	if n.uncontrolled == nil {
		n.uncontrolled = map[types.UID]map[types.UID]bool{}
	}
	n.uncontrolled[owner] = after
	if len(after) == 0 {
		delete(n.uncontrolled, owner)
	}
	x.notify(namespace)
}

// countUncontrolled returns how many available pods without the control label belong to workloads whose desired number counts for
// a rule, which includes them. A Deployment may have revisions from before it got the label.
func (n *namespace) countUncontrolled(r *ruleset) int {
	total := 0
	for controller, pods := range n.uncontrolled {
		if _, counted := n.countedOwner(r, controller); counted {
			total += len(pods)
		}
	}
	return total
}

// AvailablePods returns the UIDs of the available pods among the pods that a workload controls, for SetUncontrolled, and whether it
// controls any that stays. A pod is available once it has been Ready for minReady.
func AvailablePods(owner types.UID, minReady time.Duration, pods []*corev1.Pod, now time.Time) (available []types.UID, remain bool) {
	for _, pod := range pods {
		controller := metav1.GetControllerOfNoCopy(pod)
		if controller == nil || controller.UID != owner || pod.DeletionTimestamp != nil || podstate.Finished(pod) {
			continue
		}
		remain = true
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue && !now.Before(condition.LastTransitionTime.Add(minReady)) {
				available = append(available, pod.UID)
			}
		}
	}
	return available, remain
}
