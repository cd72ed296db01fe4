package expect

import (
	"fmt"
	"strings"

	"github.com/onsi/gomega"
	"github.com/onsi/gomega/gcustom"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// IsAvailable reports whether a pod is available, as the API defines it: marked by PodOps,
// Ready, neither terminating nor finished. It shares no code with the code under test.
func IsAvailable(pod *corev1.Pod) bool {
	_, marked := pod.Labels["podopslifecycle.kusionstack.io/service-available"]
	return marked && condition(pod, corev1.PodReady) == corev1.ConditionTrue &&
		pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning
}

// BeAvailable matches a *corev1.Pod that is available.
func BeAvailable() types.GomegaMatcher {
	return podMatcher("be available", IsAvailable)
}

// BeReady matches a *corev1.Pod whose condition Ready is True.
func BeReady() types.GomegaMatcher {
	return podMatcher("be ready", func(pod *corev1.Pod) bool { return condition(pod, corev1.PodReady) == corev1.ConditionTrue })
}

// HaveGate matches a *corev1.Pod whose readiness gate has the status; "" when the condition
// was never written.
func HaveGate(status corev1.ConditionStatus) types.GomegaMatcher {
	return podMatcher(fmt.Sprintf("have the gate %q", status), func(pod *corev1.Pod) bool {
		return condition(pod, appsv1alpha1.ServiceReadyGate) == status
	})
}

// HaveLabel matches a *corev1.Pod with a label of any value.
func HaveLabel(key string) types.GomegaMatcher {
	return podMatcher("have the label "+key, func(pod *corev1.Pod) bool {
		_, ok := pod.Labels[key]
		return ok
	})
}

// BeWaiting matches a *corev1.Pod on which the id waits for PreCheck rules.
func BeWaiting(id string) types.GomegaMatcher {
	return HaveLabel(appsv1alpha1.PreCheckLabelPrefix + "/" + id)
}

// BePermitted matches a *corev1.Pod on which the id has passed its PreCheck rules and is
// not finished.
func BePermitted(id string) types.GomegaMatcher {
	return HaveLabel(appsv1alpha1.PreCheckedLabelPrefix + "/" + id)
}

// BeOperable matches a *corev1.Pod on which the id may operate.
func BeOperable(id string) types.GomegaMatcher {
	return HaveLabel(appsv1alpha1.OperateLabelPrefix + "/" + id)
}

// HaveNoLifecycle matches a *corev1.Pod without any label of an id.
func HaveNoLifecycle() types.GomegaMatcher {
	return podMatcher("have no lifecycle", func(pod *corev1.Pod) bool { return len(LifecycleLabels(pod)) == 0 })
}

// LifecycleLabels returns the labels of a pod that belong to one lifecycle.
func LifecycleLabels(pod *corev1.Pod) map[string]string {
	found := map[string]string{}
	for key, value := range pod.Labels {
		if strings.Contains(key, "."+appsv1alpha1.LifecycleDomain+"/") {
			found[key] = value
		}
	}
	return found
}

// podMatcher prints labels and conditions on failure instead of the whole pod.
func podMatcher(sentence string, holds func(*corev1.Pod) bool) types.GomegaMatcher {
	return gcustom.MakeMatcher(func(pod *corev1.Pod) (bool, error) {
		if pod == nil {
			return false, fmt.Errorf("the pod is nil")
		}
		return holds(pod), nil
	}).WithTemplate("Expected {{.Data}} {{.To}} "+sentence+"\n{{format .Actual.Labels 1}}\n{{format .Actual.Status.Conditions 1}}", "the pod")
}

func condition(pod *corev1.Pod, kind corev1.PodConditionType) corev1.ConditionStatus {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

// All matches a non-empty slice of which every element matches.
func All(matcher types.GomegaMatcher) types.GomegaMatcher {
	return gomega.And(gomega.Not(gomega.BeEmpty()), gomega.HaveEach(matcher))
}
