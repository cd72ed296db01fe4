package world

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// moment is the time in service between two times off traffic that counts for nothing: the pod goes off traffic in vain again.
const moment = time.Second

// measureVain measures for how long a pod is off traffic in vain.
func (f *podFacts) measureVain(at time.Time, inVain bool) {
	switch {
	case !inVain && f.back.IsZero():
		f.back = at
	case inVain && (f.vain.IsZero() || !f.back.IsZero() && at.Sub(f.back) >= moment):
		f.vain, f.back = at, time.Time{}
	case inVain:
		f.back = time.Time{}
	}
}

// isInVain reports whether a pod could serve, and is off traffic with nothing left to drain: the load balancer has let go of it.
func isInVain(pod *corev1.Pod) bool {
	return isOff(pod) && !slices.Contains(pod.Finalizers, protection)
}

// isOff reports whether a pod could serve, and is off traffic:
//   - it is active, controlled and has the gate, and its containers are ready
//   - the gate is False, and no user keeps the pod offline
func isOff(pod *corev1.Pod) bool {
	_, offline := pod.Labels[appsv1alpha1.StayOfflineLabelKey]
	return isActive(pod) && isControlled(pod) && hasGate(pod) && isTrue(pod, corev1.ContainersReady) &&
		!isTrue(pod, appsv1alpha1.ServiceReadyGate) && !offline
}

// measureOff measures for how long a pod is off traffic that has been in service.
func (l *laws) measureOff(at time.Time, facts *podFacts, pod *corev1.Pod) {
	off := isOff(pod)
	switch {
	case off && facts.served && facts.off.IsZero():
		facts.off = at
	case !off && !facts.off.IsZero():
		if on := pod.Labels[app]; isActive(pod) && l.atEnd == nil {
			l.off[on] = max(l.off[on], at.Sub(facts.off))
		}
		facts.off = time.Time{}
	}
	facts.served = facts.served || isTrue(pod, corev1.PodReady)
}
