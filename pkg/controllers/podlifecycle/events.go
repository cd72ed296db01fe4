package podlifecycle

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/lifecycle"
)

// Event reasons of problems on pods. They never change.
const (
	// EventBadAvailableConditions: the annotation available-conditions cannot be read,
	// and the pod is not marked available until it can.
	EventBadAvailableConditions = "BadAvailableConditions"

	// EventInvalidLifecycle: operating is there without operation-type. Nothing
	// progresses until the type is.
	EventInvalidLifecycle = "InvalidLifecycle"

	// EventGateMissing: the pod was created without the readiness gate. Finalizers
	// protect it; PodOps cannot make it unready.
	EventGateMissing = "GateMissing"

	// EventKubeletNotSyncing: the gate is False, and the kubelet did not make the pod
	// unready in time. The operation goes on.
	EventKubeletNotSyncing = "KubeletNotSyncing"
)

// problem is what keeps a pod from moving on, or makes it move on less safely, and is
// not a rule.
type problem struct {
	reason string
	text   string
}

// problemOf returns the first problem of a pod; the zero value when there is none.
func problemOf(facts lifecycle.PodFacts, change lifecycle.Change) problem {
	if untyped := lifecycle.UntypedIDs(facts); len(untyped) > 0 {
		return problem{EventInvalidLifecycle, "label " + appsv1alpha1.OperatingLabelPrefix + "/" + untyped[0] + " needs " +
			appsv1alpha1.OperationTypeLabelPrefix + "/" + untyped[0] + ": nothing progresses without the type"}
	}
	if facts.ExpectedFinalizersErr != nil {
		return problem{EventBadAvailableConditions, "annotation " + appsv1alpha1.AvailableConditionsAnnotationKey + ": " +
			facts.ExpectedFinalizersErr.Error() + "; the pod is not marked available"}
	}
	for _, move := range change.Moves {
		if move.Step == lifecycle.StepOperate && change.WaitsForKubelet {
			return problem{EventKubeletNotSyncing, "the kubelet has not made the pod unready: operation " + move.Type + " of id " + move.ID + " starts without that"}
		}
	}
	if facts.Gate == lifecycle.GateMissing && len(lifecycle.WaitingIDs(facts)) > 0 {
		return problem{EventGateMissing, "the pod was created without the readiness gate " + appsv1alpha1.ServiceReadyGate +
			": only finalizers keep traffic off while it is operated on"}
	}
	return problem{}
}

// maxTold bounds the memory of told. Beyond it everything is forgotten, and said again.
const maxTold = 10000

// told remembers the last problem that was recorded for a pod: a pod that stays as it is
// gets one event, however often it is looked at.
type told struct {
	mu   sync.Mutex
	last map[types.UID]problem
}

// news reports whether the problem differs from the last one of the pod.
func (t *told) news(uid types.UID, p problem) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last[uid] == p {
		return false
	}
	if p == (problem{}) {
		delete(t.last, uid)
		return false
	}
	if len(t.last) >= maxTold {
		clear(t.last)
	}
	t.last[uid] = p
	return true
}

func (t *told) forget(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.last, uid)
}

func (r *Reconciler) recordProblem(pod *corev1.Pod, p problem) {
	if pod.DeletionTimestamp != nil {
		r.told.forget(pod.UID)
		return
	}
	if r.told.news(pod.UID, p) {
		r.recorder.Eventf(pod, nil, corev1.EventTypeWarning, p.reason, "Advance", "%s", p.text)
	}
}
