package deferreddelete

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// isLive reports whether an owner is the controller of a pod and stays.
func isLive(owner metav1.Object, pod *corev1.Pod) bool {
	controller := metav1.GetControllerOfNoCopy(pod)
	return controller != nil && owner.GetUID() == controller.UID && owner.GetDeletionTimestamp() == nil
}

// WantFor returns whether an owner of a pod wants it deleted, as its controller has requested it.
func WantFor(owner Owner, pod *corev1.Pod, record appsv1alpha1.PendingDelete) Want {
	switch o := owner.(type) {
	case *appsv1.StatefulSet:
		return WantOfStatefulSet(o, pod)
	case *appsv1.DaemonSet:
		return WantOfDaemonSet(o, pod, record)
	case *batchv1.Job:
		return WantOfJob(o, pod)
	default:
		return WantUnknown
	}
}

// Progress returns the fields from which follows which pods the controller of a workload deletes.
func Progress(owner metav1.Object) string {
	switch o := owner.(type) {
	case *appsv1.StatefulSet:
		return fmt.Sprintf("%d/%d/%s/%d/%d",
			o.Generation, o.Status.ObservedGeneration, o.Status.UpdateRevision, o.Status.Replicas, o.Status.AvailableReplicas)
	case *appsv1.DaemonSet:
		return fmt.Sprintf("%d/%d/%d/%d/%d",
			o.Generation, o.Status.ObservedGeneration, o.Status.NumberMisscheduled, o.Status.UpdatedNumberScheduled, o.Status.CurrentNumberScheduled)
	case *batchv1.Job:
		return fmt.Sprintf("%d/%d/%d", o.Generation, o.Status.Active, DesiredOfJob(o))
	default:
		return ""
	}
}

// WantOfStatefulSet returns whether a StatefulSet wants one of its pods deleted: its ordinal is
// outside of the range, or it is of an old revision that the strategy replaces, and its controller
// waits for no other pod. set is nil if it does not exist.
func WantOfStatefulSet(set *appsv1.StatefulSet, pod *corev1.Pod) Want {
	if set == nil || !isLive(set, pod) {
		return Unwanted
	}
	ordinal, ok := parseOrdinal(pod.Name)
	if !ok {
		return WantUnknown
	}
	start, replicas := ordinalRange(set)
	switch {
	case ordinal < start || ordinal >= start+replicas:
		return Wanted
	case set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType || ordinal < rollingPartition(set):
		return Unwanted
	case set.Status.ObservedGeneration < set.Generation || set.Status.UpdateRevision == "":
		return WantUnknown // the revision in the status may be outdated
	case pod.Labels[appsv1.ControllerRevisionHashLabelKey] != set.Status.UpdateRevision && !waitsForOthers(set, pod, replicas):
		return Wanted
	default:
		return Unwanted
	}
}

// waitsForOthers reports whether the controller of a StatefulSet replaces no pod for now, since as many other pods as may
// be unavailable are missing or unavailable, or since pods outside of the range are still there, which it removes first: it
// handles pods in their order, unless the StatefulSet has them handled in parallel.
func waitsForOthers(set *appsv1.StatefulSet, pod *corev1.Pod, replicas int) bool {
	others := int(set.Status.AvailableReplicas)
	if isReady(pod) {
		others--
	}
	return set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement &&
		(others < replicas-mayBeUnavailable(set) || int(set.Status.Replicas) > replicas)
}

// ordinalRange returns the first ordinal that a StatefulSet has, and its number of replicas.
func ordinalRange(set *appsv1.StatefulSet) (start, replicas int) {
	if set.Spec.Ordinals != nil {
		start = int(set.Spec.Ordinals.Start)
	}
	if set.Spec.Replicas == nil {
		return start, 1
	}
	return start, int(*set.Spec.Replicas)
}

// mayBeUnavailable returns how many pods of a StatefulSet a rolling update may leave unavailable.
func mayBeUnavailable(set *appsv1.StatefulSet) int {
	_, replicas := ordinalRange(set)
	if rolling := set.Spec.UpdateStrategy.RollingUpdate; rolling != nil {
		return maxUnavailable(rolling.MaxUnavailable, replicas, false)
	}
	return 1
}

// maxUnavailable returns how many pods a rolling update may leave unavailable: at least one, which is the default.
// The controller of DaemonSets rounds a percentage up, that of StatefulSets down.
func maxUnavailable(value *intstr.IntOrString, pods int, roundUp bool) int {
	if value == nil {
		return 1
	}
	number, err := intstr.GetScaledValueFromIntOrPercent(value, pods, roundUp)
	if err != nil {
		return 1
	}
	return max(1, number)
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// rollingPartition returns the least ordinal that a rolling update replaces.
func rollingPartition(set *appsv1.StatefulSet) int {
	rolling := set.Spec.UpdateStrategy.RollingUpdate
	if rolling == nil || rolling.Partition == nil {
		return 0
	}
	return int(*rolling.Partition)
}

// parseOrdinal returns the number at the end of a StatefulSet pod's name.
func parseOrdinal(name string) (int, bool) {
	ordinal, err := strconv.Atoi(name[strings.LastIndex(name, "-")+1:])
	return ordinal, err == nil && ordinal >= 0
}

// WantOfDaemonSet returns whether a DaemonSet still wants a pod with a pending delete deleted. After an edit, its controller
// deletes the pod again if it does, and the record has the new generation then. Without one, its status shows that it
// wants none deleted: no pod is on a node that is not selected, and none is of an old revision. set is nil if it does not
// exist.
func WantOfDaemonSet(set *appsv1.DaemonSet, pod *corev1.Pod, record appsv1alpha1.PendingDelete) Want {
	switch {
	case set == nil || !isLive(set, pod) || isInPlace(set):
		return Unwanted
	case record.OwnerGeneration == 0:
		return WantUnknown
	case set.Generation > record.OwnerGeneration:
		return Unwanted
	default:
		return Wanted
	}
}

// isInPlace reports whether each pod of a DaemonSet is where it is to be, and of the revision that it is to have.
func isInPlace(set *appsv1.DaemonSet) bool {
	status := &set.Status
	replaces := set.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType
	return status.ObservedGeneration > 0 && status.ObservedGeneration == set.Generation && status.NumberMisscheduled == 0 &&
		(!replaces || status.UpdatedNumberScheduled == status.CurrentNumberScheduled)
}

// Owner is the controller of a pod.
type Owner interface {
	metav1.Object
	runtime.Object
}

// NewOwner returns an empty object with the kind of a pod's controller, and whether the manager
// has a cache of the kind. It returns nil if the pod has no controller, or a controller of a kind
// that PodOps does not know.
func NewOwner(pod *corev1.Pod) (owner Owner, isCached bool) {
	switch OwnerKind(pod) {
	case kindReplicaSet:
		return &appsv1.ReplicaSet{}, true
	case kindStatefulSet:
		return &appsv1.StatefulSet{}, true
	case kindDaemonSet:
		return &appsv1.DaemonSet{}, true
	case kindJob:
		return &batchv1.Job{}, false
	default:
		return nil, false
	}
}
