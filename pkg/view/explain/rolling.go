package explain

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/podstate"
	"github.com/podops-dev/podops/pkg/core/replicasetscale"
)

// controller returns the ReplicaSet, StatefulSet or DaemonSet that controls the pod; nil if the snapshot does not have it.
func (x *explainer) controller() deferreddelete.Owner {
	reference := metav1.GetControllerOfNoCopy(x.pod)
	if reference == nil {
		return nil
	}
	if set := x.s.ReplicaSet(reference.Name); set != nil && set.UID == reference.UID {
		return set
	}
	if set := x.s.StatefulSet(reference.Name); set != nil && set.UID == reference.UID {
		return set
	}
	if set := x.s.DaemonSet(reference.Name); set != nil && set.UID == reference.UID {
		return set
	}
	return nil
}

// keptByRollingUpdate reports a pod that its rules may permit, while as many pods of its StatefulSet or DaemonSet as a rolling
// update may take away are unavailable, or go first. It returns false for any other pod.
func (x *explainer) keptByRollingUpdate(operation podstate.Operation) bool {
	owner, record := x.controller(), x.state.Delete
	if owner == nil || operation.ID != appsv1alpha1.PodDeleteID || record == nil || deferreddelete.Actor(record.Actor) != deferreddelete.ActorOwner {
		return false
	}
	var others []string
	pods := x.s.PodsOwnedBy(owner.GetUID())
	for _, other := range pods {
		if other.UID != x.pod.UID && appsv1alpha1.IsControlled(other.Labels) && !podstate.Finished(other) && goesBefore(owner, other, x.pod) {
			others = append(others, other.Name)
		}
	}
	unavailable := len(others) + max(0, desired(owner)-len(pods))
	if !podstate.Available(x.pod) || !deferreddelete.Rolls(owner, x.pod) || deferreddelete.MayLose(owner, unavailable) {
		return false
	}
	reason := Reason{
		Situation: RollingUpdateMax, Stage: string(appsv1alpha1.StagePreCheck), Since: timeOrNil(operation.Since),
		Message: fmt.Sprintf("%s waits for other pods of %s %s: its rolling update takes away no more than maxUnavailable at once",
			operation.Describe(), metav1.GetControllerOfNoCopy(x.pod).Kind, owner.GetName()),
	}
	x.addBlockers(&reason, nil, others)
	x.because(rankLater, reason)
	return true
}

// desired returns how many pods a StatefulSet or DaemonSet has at least while its rolling update replaces pods; 0 if that does not matter.
func desired(owner deferreddelete.Owner) int {
	switch set := owner.(type) {
	case *appsv1.StatefulSet:
		if set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement {
			return replicasetscale.Replicas(set.Spec.Replicas)
		}
	case *appsv1.DaemonSet:
		return int(set.Status.DesiredNumberScheduled)
	}
	return 0
}

// goesBefore reports whether a rolling update waits for another pod: it is unavailable, or waits and has a higher ordinal.
func goesBefore(owner deferreddelete.Owner, other, pod *corev1.Pod) bool {
	set, ordered := owner.(*appsv1.StatefulSet)
	switch {
	case ordered && deferreddelete.Begun(other) != "" && deferreddelete.CompareOrdinals(other, pod) > 0:
		return true
	case ordered && set.Spec.PodManagementPolicy == appsv1.ParallelPodManagement:
		return lifecycle.NewPodFacts(other).Permitted()
	default:
		return !podstate.Available(other)
	}
}
