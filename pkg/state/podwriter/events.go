package podwriter

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/tools/events"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
)

// Event reasons on pods. They never change.
const (
	// EventPermitted reports that the PreCheck rules have passed, and traffic is going off.
	EventPermitted = "Permitted"

	// EventServiceAvailable reports that the pod may serve, for the first time or again.
	EventServiceAvailable = "ServiceAvailable"

	// EventServiceReady reports that the gate service-ready was set to False without a permit.
	EventServiceReady = "ServiceReady"

	// EventReleased reports that the pod is no longer under PodOps.
	EventReleased = "Released"
)

// recordTransitions records the transitions of a write. A lifecycle has two events that include
// the other steps: Permitted here, and ServiceAvailable when the pod is seen available
// (Observe). Only unusual steps have an event of their own.
func recordTransitions(recorder events.EventRecorder, pod *corev1.Pod, change lifecycle.Change, now time.Time) {
	record := func(reason, action, note string, args ...any) {
		recorder.Eventf(pod, nil, corev1.EventTypeNormal, reason, action, note, args...)
	}
	closes := change.Gate != nil && !*change.Gate
	var permitted []string
	for _, transition := range change.Transitions {
		switch transition.Step { //nolint:exhaustive // The other steps are part of the two events, see above.
		case lifecycle.StepPermit:
			permitted = append(permitted, fmt.Sprintf("%s passed its PreCheck rules%s%s",
				lifecycle.DescribeOperation(transition.Type, transition.ID), inBrackets(transition.Rules), waited(pod, transition.ID, now)))
		case lifecycle.StepRelease:
			record(EventReleased, "Release", "the pod is no longer under PodOps: its lifecycles have ended")
		}
	}
	switch {
	case len(permitted) > 0 && closes:
		record(EventPermitted, "Permit", "%s: readiness gate False, traffic goes off", strings.Join(permitted, "; "))
	case len(permitted) > 0:
		record(EventPermitted, "Permit", "%s: traffic goes off", strings.Join(permitted, "; "))
	case closes:
		record(EventServiceReady, "SetGate", "readiness gate False, traffic goes off")
	}
}

func inBrackets(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return " (" + strings.Join(names, ", ") + ")"
}

// waited returns how long an id has waited for its PreCheck rules, if that is worth reporting.
func waited(pod *corev1.Pod, id string, now time.Time) string {
	since, ok := lifecycle.ParseTime(pod.Labels[appsv1alpha1.PreCheckLabelPrefix+"/"+id])
	if took := now.Sub(since); ok && took >= time.Second {
		return " after " + duration.HumanDuration(took)
	}
	return ""
}
