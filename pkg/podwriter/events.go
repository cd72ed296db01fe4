package podwriter

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/tools/events"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/lifecycle"
)

// Event reasons on pods. They never change.
const (
	// EventPermitted: the PreCheck rules have passed, traffic is going off.
	EventPermitted = "Permitted"

	// EventServiceAvailable: the pod may serve, for the first time or again.
	EventServiceAvailable = "ServiceAvailable"

	// EventServiceReady: the gate service-ready was set to False without a permit.
	EventServiceReady = "ServiceReady"

	// EventReleased: the pod is no longer under PodOps.
	EventReleased = "Released"
)

// recordMoves records what a write has done. A lifecycle has two events, each of which
// also reports what lies between: Permitted here, and ServiceAvailable when the pod is seen
// available (Observe). Only unusual steps have one besides.
func recordMoves(recorder events.EventRecorder, pod *corev1.Pod, change lifecycle.Change, now time.Time) {
	record := func(reason, action, note string, args ...any) {
		recorder.Eventf(pod, nil, corev1.EventTypeNormal, reason, action, note, args...)
	}
	closes := change.Gate != nil && !*change.Gate
	var permitted []string
	for _, move := range change.Transitions {
		switch move.Step { //nolint:exhaustive // The other steps are part of the two events, see above.
		case lifecycle.StepPermit:
			permitted = append(permitted, fmt.Sprintf("%s passed its PreCheck rules%s%s", operation(move), inBrackets(move.Rules), waited(pod, move.ID, now)))
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

func operation(move lifecycle.Transition) string {
	return fmt.Sprintf("operation %s of id %s", move.Type, move.ID)
}

func inBrackets(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return " (" + strings.Join(names, ", ") + ")"
}

// waited is how long an id has waited for its PreCheck rules, when that is worth a word.
func waited(pod *corev1.Pod, id string, now time.Time) string {
	since, ok := lifecycle.ParseTime(pod.Labels[appsv1alpha1.PreCheckLabelPrefix+"/"+id])
	if took := now.Sub(since); ok && took >= time.Second {
		return " after " + duration.HumanDuration(took)
	}
	return ""
}
