package sim

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kubelet reports the conditions of one pod.
type Kubelet struct {
	// Healthy is true while the containers run and pass their probes.
	Healthy bool
}

// Report sets the conditions of the pod as a kubelet does
// (k8s.io/kubernetes/pkg/kubelet/status/generate.go).
func (k Kubelet) Report(pod *corev1.Pod, now time.Time) {
	SetCondition(pod, corev1.ContainersReady, k.Healthy, "", now)
	gatesTrue := !slices.ContainsFunc(pod.Spec.ReadinessGates, func(gate corev1.PodReadinessGate) bool {
		return !IsTrue(pod, gate.ConditionType)
	})
	switch {
	case !k.Healthy:
		SetCondition(pod, corev1.PodReady, false, "ContainersNotReady", now)
	case !gatesTrue:
		SetCondition(pod, corev1.PodReady, false, "ReadinessGatesNotReady", now)
	default:
		SetCondition(pod, corev1.PodReady, true, "", now)
	}
}

// IsTrue reports whether a condition of the pod is True.
func IsTrue(pod *corev1.Pod, kind corev1.PodConditionType) bool {
	condition := Condition(pod, kind)
	return condition != nil && condition.Status == corev1.ConditionTrue
}

// Condition returns a condition of the pod, which may be changed in place; nil when the pod
// does not have it.
func Condition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	if i < 0 {
		return nil
	}
	return &pod.Status.Conditions[i]
}

// RemoveCondition removes a condition of the pod, if it has it.
func RemoveCondition(pod *corev1.Pod, kind corev1.PodConditionType) {
	pod.Status.Conditions = slices.DeleteFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
}

// SetCondition writes a condition as the API stores it: times have whole seconds, and the
// transition time changes only with the status.
func SetCondition(pod *corev1.Pod, kind corev1.PodConditionType, on bool, reason string, now time.Time) {
	status := corev1.ConditionFalse
	if on {
		status = corev1.ConditionTrue
	}
	condition := Condition(pod, kind)
	if condition == nil {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: kind})
		condition = Condition(pod, kind)
	}
	if condition.Status != status {
		condition.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
	}
	condition.Status, condition.Reason = status, reason
}
