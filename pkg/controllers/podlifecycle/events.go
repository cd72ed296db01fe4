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

	// EventKubeletNotSyncing: the kubelet did not follow the gate in time. With the gate
	// False the operation goes on although the pod is Ready; with the gate True the pod is not
	// available until it is Ready.
	EventKubeletNotSyncing = appsv1alpha1.ReasonKubeletNotSyncing

	// EventBadAnnotation: the settle time or the gate sync policy of the pod cannot be read.
	// Those of the manager apply.
	EventBadAnnotation = "BadAnnotation"
)

// problem is what keeps a pod from moving on, or makes it move on less safely, and is
// not a rule.
type problem struct {
	reason string
	text   string
}

// problemOf returns the first problem of a pod; the zero value when there is none.
func problemOf(facts lifecycle.PodFacts, change lifecycle.Change, options lifecycle.Options) problem {
	if untyped := lifecycle.UntypedIDs(facts); len(untyped) > 0 {
		return problem{EventInvalidLifecycle, lifecycle.UntypedText(untyped)}
	}
	if facts.ExpectedFinalizersErr != nil {
		return problem{EventBadAvailableConditions, "annotation " + appsv1alpha1.AvailableConditionsAnnotationKey + ": " +
			facts.ExpectedFinalizersErr.Error() + "; the pod is not marked available"}
	}
	if notSyncing(facts, change) {
		return problem{EventKubeletNotSyncing, kubeletText(facts, options)}
	}
	if facts.AnnotationErr != nil {
		return problem{EventBadAnnotation, facts.AnnotationErr.Error() + "; the setting of the manager applies"}
	}
	if facts.Gate == lifecycle.GateMissing && len(lifecycle.WaitingIDs(facts)) > 0 {
		return problem{EventGateMissing, lifecycle.GateMissingText()}
	}
	return problem{}
}

// notSyncing reports whether the gate says, or is about to, that the kubelet does not follow.
func notSyncing(facts lifecycle.PodFacts, change lifecycle.Change) bool {
	if change.GateReason != nil {
		return *change.GateReason == appsv1alpha1.ReasonKubeletNotSyncing
	}
	return facts.NotSyncing
}

func kubeletText(facts lifecycle.PodFacts, options lifecycle.Options) string {
	switch {
	case facts.Gate == lifecycle.GateTrue:
		return "the kubelet has not made the pod Ready although its gate is open: it is not available until then"
	case options.Continues(facts):
		return "the kubelet has not made the pod unready although its gate is closed: operations start without that"
	default:
		return "the kubelet has not made the pod unready although its gate is closed: operations wait until it does"
	}
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
		r.problems.WithLabelValues(p.reason).Inc()
		r.recorder.Eventf(pod, nil, corev1.EventTypeWarning, p.reason, "Advance", "%s", p.text)
	}
}
