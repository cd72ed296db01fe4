package podlifecycle

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/runtime/text"
)

// Event reasons of pods that wait for a change of their traffic. They never change.
const (
	// EventTrafficStillOn reports that an operation waits for a service controller, or for the
	// kubelet, to take traffic off.
	EventTrafficStillOn = "TrafficStillOn"

	// EventTrafficNotOn reports that the pod waits for a service controller to put traffic on.
	EventTrafficNotOn = "TrafficNotOn"
)

// pendingAfter is the time for which a pod waits for its traffic before that is reported. Most
// pods wait less, and the write would help no reader.
const pendingAfter = 10 * time.Second

// maxGateMessageBytes bounds the message of the condition.
const maxGateMessageBytes = 1024

// explainPending adds to the condition of a pod the cause for which its traffic has waited for
// pendingAfter, and removes it when the wait has ended. It extends a change that does not write the
// gate, and returns the addition and how soon to check again. The condition survives a restart: a
// text that is present has had its event.
func explainPending(pod *corev1.Pod, facts lifecycle.PodFacts, change *lifecycle.Change, now time.Time) (explained *lifecycle.Pending, wake time.Duration) {
	condition := gateCondition(pod)
	if change.Gate != nil || condition == nil {
		return nil, pendingWake(facts, now)
	}
	reason, message := "", appsv1alpha1.ServiceReadyMessage
	isExplained := strings.HasPrefix(condition.Message, message+": ")
	if change.GateReason != nil || facts.NotSyncing {
		if change.GateReason != nil && isExplained {
			change.GateMessage = &message
		}
		return nil, 0
	}
	pending, waits := lifecycle.FindPending(facts)
	waits = waits && len(change.Transitions) == 0
	if left := pendingAfter - now.Sub(pending.Since); waits && left > 0 {
		return nil, left
	}
	if waits {
		reason, message = pending.Reason, text.Line(message+": "+pending.Text, maxGateMessageBytes)
	}
	if condition.Message == message || !waits && !isExplained {
		return nil, 0
	}
	change.GateReason, change.GateMessage = &reason, &message
	if !waits {
		return nil, 0
	}
	return &pending, 0
}

// pendingWake returns how soon a pod has waited for long enough; 0 when it does not wait or
// already has.
func pendingWake(facts lifecycle.PodFacts, now time.Time) time.Duration {
	pending, waits := lifecycle.FindPending(facts)
	if !waits {
		return 0
	}
	return max(0, pendingAfter-now.Sub(pending.Since))
}

// gatelessProblem returns the cause for which the traffic of a pod without the gate, and so without
// a condition, has waited.
func gatelessProblem(facts lifecycle.PodFacts, now time.Time) lifecycle.Problem {
	pending, waits := lifecycle.FindPending(facts)
	if !waits || facts.Gate != lifecycle.GateMissing || now.Sub(pending.Since) < pendingAfter {
		return lifecycle.Problem{}
	}
	return lifecycle.Problem{Reason: pendingEvent(pending), Text: pending.Text}
}

func pendingEvent(pending lifecycle.Pending) string {
	if pending.Reason == appsv1alpha1.ReasonCompleting {
		return EventTrafficNotOn
	}
	return EventTrafficStillOn
}

func gateCondition(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == appsv1alpha1.ServiceReadyGate {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// recordPending records the cause for which the traffic of a pod waits.
func (r *Reconciler) recordPending(pod *corev1.Pod, pending lifecycle.Pending) {
	r.Recorder.Eventf(pod, nil, corev1.EventTypeWarning, pendingEvent(pending), "Advance", "%s for %s",
		pending.Text, duration.HumanDuration(r.Clock.Since(pending.Since)))
}
