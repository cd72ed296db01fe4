package podstatus

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	"github.com/podops-dev/podops/pkg/lifecycle"
)

// Event reasons on pods. They never change.
const (
	// EventPermitted: the PreCheck rules have passed, traffic is going off.
	EventPermitted = "Permitted"

	// EventOperate: traffic is off, the operation may start.
	EventOperate = "Operate"

	// EventPostPermitted: the PostCheck rules have passed, traffic is coming back.
	EventPostPermitted = "PostPermitted"

	// EventServiceAvailable: the pod may serve.
	EventServiceAvailable = "ServiceAvailable"

	// EventServiceReady: the gate service-ready has changed.
	EventServiceReady = "ServiceReady"

	// EventReleased: the pod is no longer under PodOps.
	EventReleased = "Released"
)

// recordMoves records one event for each step that others can act on. Begin, finish
// and the clean-up of an id are somebody's own doing and get none.
func recordMoves(recorder events.EventRecorder, pod *corev1.Pod, change lifecycle.Change) {
	record := func(reason, action, note string, args ...any) {
		recorder.Eventf(pod, nil, corev1.EventTypeNormal, reason, action, note, args...)
	}
	for _, move := range change.Moves {
		switch move.Step { //nolint:exhaustive // The other steps get no event, see above.
		case lifecycle.StepPermit:
			record(EventPermitted, "Permit", "operation %s of id %s passed its PreCheck rules: taking traffic off", move.Type, move.ID)
		case lifecycle.StepOperate:
			record(EventOperate, "Operate", "traffic is off: operation %s of id %s may start", move.Type, move.ID)
		case lifecycle.StepPostPermit:
			record(EventPostPermitted, "PostPermit", "operation %s of id %s passed its PostCheck rules: putting traffic on", move.Type, move.ID)
		case lifecycle.StepAvailable:
			record(EventServiceAvailable, "Available", "the pod may serve")
		case lifecycle.StepRelease:
			record(EventReleased, "Release", "the pod is no longer under PodOps: its lifecycles have ended")
		}
	}
	if change.Gate != nil {
		state := "False"
		if *change.Gate {
			state = "True"
		}
		record(EventServiceReady, "SetGate", "readiness gate set to %s", state)
	}
}
