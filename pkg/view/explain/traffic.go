package explain

import (
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/podstate"
	"github.com/podops-dev/podops/pkg/runtime/text"
	"github.com/podops-dev/podops/pkg/view/clusterstate"
)

// trafficOff reports why an operation that is permitted does not start.
func (x *explainer) trafficOff() {
	pending := x.state.Pending
	switch {
	case pending == nil:
		x.because(rankLater, Reason{
			Situation: Settling, Since: timeOrNil(x.state.Since),
			Message: "traffic is off at the readiness gate; the operation starts once every node has removed the endpoint",
		})
	case pending.Drains:
		x.because(rankLater, Reason{Situation: ConnectionsLeft, Message: pending.Text, Since: timeOrNil(pending.Since), Commands: []Command{{
			"operate on it although connections may be left",
			x.kubectl("annotate pod %s %s=1s --overwrite", x.pod.Name, appsv1alpha1.DrainTimeoutAnnotationKey),
		}}})
	case len(pending.Finalizers) == 0:
		x.because(rankLater, Reason{Situation: Kubelet, Message: pending.Text, Since: timeOrNil(pending.Since), Commands: x.nodeCommands()})
	default:
		x.finalizersHold(TrafficStillOn, "left", pending)
	}
}

// finalizersHold reports the finalizers that are left or missing, and their controllers.
func (x *explainer) finalizersHold(situation Situation, state string, pending *lifecycle.Pending) {
	reason := Reason{Situation: situation, Message: pending.Text, Since: timeOrNil(pending.Since)}
	r := rankLater
	for _, finalizer := range x.state.Finalizers {
		if finalizer.Present != (state == "left") {
			continue
		}
		shown := x.finalizer(finalizer, state)
		reason.Finalizers = append(reason.Finalizers, shown)
		switch {
		case len(finalizer.Employers) == 0:
			reason.Situation, r = UnknownFinalizer, rankDenied
			reason.Commands = append(reason.Commands, x.unstick())
		case x.allGone(finalizer):
			reason.Situation, r = EmployerGone, rankDenied
			reason.Message += "; " + strings.Join(finalizer.Employers, ", ") + " is gone or does not select the pod any more"
			reason.Commands = append(reason.Commands, x.unstick())
		default:
			reason = x.adapter(reason, finalizer)
			if reason.Situation == AdapterAway {
				r = rankDenied
			}
		}
	}
	x.because(r, reason)
}

// adapter adds the controllers of the Services that expect a finalizer.
func (x *explainer) adapter(reason Reason, finalizer podstate.Finalizer) Reason {
	for _, employer := range finalizer.Employers {
		service, ok := podstate.ParseEmployer(employer)
		if !ok {
			continue
		}
		reason.Commands = append(reason.Commands,
			Command{"see its Service, with the events of the service controller", x.kubectl("describe service %s", service.Name)})
		reason.Message += x.inconsistent(service.Name)
		adapter := x.s.AdapterFor(service.Name)
		if adapter == nil {
			continue
		}
		if why, away := adapterAway(adapter); away {
			reason.Situation = AdapterAway
			reason.Message += "; its adapter " + adapter.Spec.Controller + " does not run: " + why
			reason.Commands = append([]Command{{"see the adapter", "kubectl describe trafficadapter " + adapter.Name}}, reason.Commands...)
		}
	}
	return reason
}

// inconsistent quotes why the provider does not have the expected state of a Service, empty if it has, or if that is not reported.
func (x *explainer) inconsistent(name string) string {
	service := x.s.Service(name)
	if service == nil {
		return ""
	}
	consistent := meta.FindStatusCondition(service.Status.Conditions, appsv1alpha1.ConditionConsistent)
	if consistent == nil || consistent.Status != metav1.ConditionFalse {
		return ""
	}
	return fmt.Sprintf("; condition %s of Service %s: %s", consistent.Type, name, text.Line(consistent.Message, maxQuoteBytes))
}

// maxQuoteBytes bounds the message of a condition that is quoted.
const maxQuoteBytes = 300

// adapterAway returns why an adapter does not run.
func adapterAway(adapter *clusterstate.Adapter) (why string, away bool) {
	running := meta.FindStatusCondition(adapter.Status.Conditions, appsv1alpha1.ConditionRunning)
	if running == nil || running.Status != "False" {
		return "", false
	}
	return running.Message, true
}

func (x *explainer) allGone(finalizer podstate.Finalizer) bool {
	for _, employer := range finalizer.Employers {
		if !x.s.Gone(x.pod, employer) {
			return false
		}
	}
	return !x.s.CannotRead("services")
}

// finalizer returns a finalizer with the controller that writes it.
func (x *explainer) finalizer(finalizer podstate.Finalizer, state string) Finalizer {
	shown := Finalizer{Name: finalizer.Name, State: state, Employers: finalizer.Employers}
	for _, employer := range finalizer.Employers {
		if service, ok := podstate.ParseEmployer(employer); ok && shown.Controller == "" {
			if adapter := x.s.AdapterFor(service.Name); adapter != nil {
				shown.Controller = adapter.Spec.Controller
			}
		}
	}
	return shown
}

// comesBack reports why a pod that nothing holds back does not serve.
func (x *explainer) comesBack() {
	facts := x.state.Facts
	switch {
	case x.state.StayOffline:
		x.because(rankEdit, Reason{
			Situation: StayOffline, Since: timeOrNil(facts.GateSince),
			Message:  fmt.Sprintf("label %s keeps it off traffic until it is removed", appsv1alpha1.StayOfflineLabelKey),
			Commands: []Command{{"let it serve", x.kubectl("label pod %s %s-", x.pod.Name, appsv1alpha1.StayOfflineLabelKey)}},
		})
	case x.pod.Spec.NodeName == "":
		x.because(rankDenied, Reason{
			Situation: NotScheduled, Message: "no node is found for it" + x.conditionText(corev1.PodScheduled), Since: timeOrNil(x.pod.CreationTimestamp.Time),
			Commands: []Command{{"see why", x.kubectl("describe pod %s", x.pod.Name)}},
		})
	case !facts.ContainersReady && !facts.Ready:
		reason := Reason{
			Situation: ContainersNotReady, Message: "its containers are not ready" + x.containers(), Since: timeOrNil(x.notReadySince()),
			Commands: []Command{
				{"see why", x.kubectl("describe pod %s", x.pod.Name)},
				{"see its log", x.kubectl("logs %s --all-containers --tail=50", x.pod.Name)},
			},
		}
		x.notReplaced(&reason)
		x.because(rankDenied, reason)
	case x.state.Pending != nil:
		x.finalizersHold(TrafficNotOn, "missing", x.state.Pending)
	case !facts.Ready && x.otherGate() != "":
		x.because(rankDenied, Reason{
			Situation: ReadinessGate, Message: x.otherGate(), Since: timeOrNil(x.pod.CreationTimestamp.Time),
			Commands: []Command{{"see its conditions", x.kubectl("describe pod %s", x.pod.Name)}},
		})
	case !facts.Ready:
		x.because(rankLater, Reason{
			Situation: Kubelet, Message: "waits for the kubelet to make the pod Ready" + x.conditionText(corev1.PodReady),
			Since: timeOrNil(facts.GateSince), Commands: x.nodeCommands(),
		})
	}
}

// notReplaced adds that the controller of a StatefulSet does not replace the pod by its newest revision, although a rolling
// update would: with the policy OrderedReady it waits for each pod to be Ready first, as after a broken revision was undone.
func (x *explainer) notReplaced(reason *Reason) {
	controller := metav1.GetControllerOf(x.pod)
	if controller == nil || controller.Kind != "StatefulSet" {
		return
	}
	set := x.s.StatefulSet(controller.Name)
	if set == nil || set.UID != controller.UID || set.Spec.PodManagementPolicy == appsv1.ParallelPodManagement ||
		!deferreddelete.Replaces(set, x.pod) {
		return
	}
	if newest := set.Status.UpdateRevision; newest == "" || x.pod.Labels[appsv1.StatefulSetRevisionLabel] == newest {
		return
	}
	reason.Message += ". It has an earlier revision, and the controller of StatefulSet " + set.Name + " does not replace it before it is Ready"
	reason.Commands = append(reason.Commands, Command{"replace it", podops(x.pod.Namespace, "delete pod %s", x.pod.Name)})
}

// otherGate returns why the pod waits for another controller that has to set a readiness gate; empty if it does not.
func (x *explainer) otherGate() string {
	for _, gate := range x.pod.Spec.ReadinessGates {
		condition := x.condition(gate.ConditionType)
		switch {
		case gate.ConditionType == appsv1alpha1.ServiceReadyGate || condition != nil && condition.Status == corev1.ConditionTrue:
		case condition == nil:
			return fmt.Sprintf("waits for the controller of the readiness gate %s, which has not set the condition", gate.ConditionType)
		default:
			return fmt.Sprintf("waits for the controller of the readiness gate %s: the condition is %s%s",
				gate.ConditionType, condition.Status, x.conditionText(gate.ConditionType))
		}
	}
	return ""
}

// containers returns the first container that is not ready, and why.
func (x *explainer) containers() string {
	for _, status := range x.pod.Status.ContainerStatuses {
		if status.Ready {
			continue
		}
		switch {
		case status.State.Waiting != nil && status.State.Waiting.Reason != "":
			return fmt.Sprintf(": container %s waits (%s)", status.Name, status.State.Waiting.Reason)
		case status.State.Terminated != nil:
			return fmt.Sprintf(": container %s ended with exit code %d", status.Name, status.State.Terminated.ExitCode)
		default:
			return fmt.Sprintf(": container %s runs and is not ready", status.Name)
		}
	}
	return ""
}

func (x *explainer) conditionText(kind corev1.PodConditionType) string {
	if condition := x.condition(kind); condition != nil && condition.Message != "" {
		return ": " + condition.Message
	}
	return ""
}

func (x *explainer) condition(kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range x.pod.Status.Conditions {
		if x.pod.Status.Conditions[i].Type == kind {
			return &x.pod.Status.Conditions[i]
		}
	}
	return nil
}

// notReadySince returns when the containers stopped to be ready, or were created.
func (x *explainer) notReadySince() time.Time {
	if condition := x.condition(corev1.ContainersReady); condition != nil {
		return condition.LastTransitionTime.Time
	}
	return x.pod.CreationTimestamp.Time
}
