package podlifecycle

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/fairshare"
	"github.com/podops-dev/podops/pkg/lifecycle"
)

// Event reasons of problems on pods. They never change.
const (
	// EventBadAvailableConditions reports that the annotation available-conditions is malformed.
	// The pod is not marked available until it is corrected.
	EventBadAvailableConditions = "BadAvailableConditions"

	// EventInvalidLifecycle reports operating without operation-type. Nothing progresses until
	// the type is added.
	EventInvalidLifecycle = "InvalidLifecycle"

	// EventGateMissing reports that the pod was created without the readiness gate. Finalizers
	// protect it; PodOps cannot make it unready.
	EventGateMissing = "GateMissing"

	// EventKubeletNotSyncing reports that the kubelet did not follow the gate in time. With the
	// gate False the operation continues although the pod is Ready; with the gate True the pod is
	// not available until it is Ready.
	EventKubeletNotSyncing = appsv1alpha1.ReasonKubeletNotSyncing

	// EventBadAnnotation reports that the settle time or the gate sync policy of the pod is
	// malformed. The settings of the manager apply.
	EventBadAnnotation = "BadAnnotation"
)

// problem is a condition, other than a rule, that stops the lifecycle of a pod or makes it
// less safe.
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

// notSyncing reports whether the gate has, or is about to get, the reason KubeletNotSyncing.
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

// problemBytes bounds the memory of problems, about 10,000. Beyond it the namespace with the most of
// them loses its oldest, which are recorded again.
const problemBytes = 6 << 20

// lastProblems contains the last problem that was recorded for each pod: an unchanged pod
// gets one event, however often it is reconciled. One pod is reconciled by one worker at a time.
type lastProblems struct {
	last *fairshare.Cache[types.UID, problem]
}

func newLastProblems() lastProblems {
	return lastProblems{last: fairshare.NewCache[types.UID, problem](problemBytes)}
}

// changed reports whether the pod has a problem that differs from its last one.
func (l lastProblems) changed(pod *corev1.Pod, p problem) bool {
	if last, _ := l.last.Get(pod.UID); last == p {
		return false
	}
	if p == (problem{}) {
		l.last.Remove(pod.UID)
		return false
	}
	l.last.Add(pod.Namespace, pod.UID, p, int64(len(pod.UID)+len(p.reason)+len(p.text)))
	return true
}

func (r *Reconciler) recordProblem(pod *corev1.Pod, p problem) {
	if pod.DeletionTimestamp != nil {
		r.lastProblems.last.Remove(pod.UID)
		return
	}
	if r.lastProblems.changed(pod, p) {
		r.problems.WithLabelValues(p.reason).Inc()
		r.recorder.Eventf(pod, nil, corev1.EventTypeWarning, p.reason, "Advance", "%s", p.text)
	}
}
