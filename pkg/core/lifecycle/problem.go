package lifecycle

import appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"

// Reasons of problems. They never change.
const (
	// ProblemBadAvailableConditions means that the annotation available-conditions is malformed.
	// The pod is not marked available until it is corrected.
	ProblemBadAvailableConditions = "BadAvailableConditions"

	// ProblemInvalidLifecycle means operating without operation-type. Nothing progresses until
	// the type is added.
	ProblemInvalidLifecycle = "InvalidLifecycle"

	// ProblemGateMissing means that the pod was created without the readiness gate. Finalizers
	// protect it; PodOps cannot make it unready.
	ProblemGateMissing = "GateMissing"

	// ProblemKubeletNotSyncing means that the kubelet did not follow the gate in time. With the
	// gate False the operation continues although the pod is Ready; with the gate True the pod is
	// not available until it is Ready.
	ProblemKubeletNotSyncing = appsv1alpha1.ReasonKubeletNotSyncing

	// ProblemBadAnnotation means that an annotation with which the pod sets its own waits is malformed. It counts as absent.
	ProblemBadAnnotation = "BadAnnotation"
)

// Problem is a condition, other than a rule, that stops the lifecycle of a pod or makes it
// less safe.
type Problem struct {
	Reason string
	Text   string
}

// FindProblem returns the first problem of a pod; the zero value for a pod without a problem.
func FindProblem(facts PodFacts, change Change, options Options) Problem {
	if untyped := UntypedIDs(facts); len(untyped) > 0 {
		return Problem{ProblemInvalidLifecycle, UntypedText(untyped)}
	}
	if facts.ExpectedFinalizersErr != nil {
		return Problem{ProblemBadAvailableConditions, "annotation " + appsv1alpha1.AvailableConditionsAnnotationKey + ": " +
			facts.ExpectedFinalizersErr.Error() + "; the pod is not marked available"}
	}
	if notSyncing(facts, change) {
		return Problem{ProblemKubeletNotSyncing, kubeletText(facts, options)}
	}
	if facts.AnnotationErr != nil {
		return Problem{ProblemBadAnnotation, facts.AnnotationErr.Error() + "; it counts as absent"}
	}
	if facts.Gate == GateMissing && len(WaitingIDs(facts)) > 0 {
		return Problem{ProblemGateMissing, GateMissingText()}
	}
	return Problem{}
}

// notSyncing reports whether the gate has, or is about to get, the reason KubeletNotSyncing.
func notSyncing(facts PodFacts, change Change) bool {
	if change.GateReason != nil {
		return *change.GateReason == appsv1alpha1.ReasonKubeletNotSyncing
	}
	return facts.NotSyncing
}

func kubeletText(facts PodFacts, options Options) string {
	switch {
	case facts.Gate == GateTrue:
		return "the kubelet has not made the pod Ready although its gate is open: it is not available until then"
	case options.Continues(facts):
		return "the kubelet has not made the pod unready although its gate is closed: operations start without that"
	default:
		return "the kubelet has not made the pod unready although its gate is closed: operations wait until it does"
	}
}
