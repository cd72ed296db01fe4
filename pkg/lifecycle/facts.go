package lifecycle

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// reasonReadinessGatesNotReady is the reason that the kubelet gives the condition
// Ready when nothing but readiness gates keeps the pod from being ready
// (k8s.io/kubernetes/pkg/kubelet/status/generate.go).
const reasonReadinessGatesNotReady = "ReadinessGatesNotReady"

// Gate is what a pod says about its readiness gate service-ready.
type Gate int

const (
	// GateMissing: the pod was created without the gate. Finalizers still protect it,
	// but PodOps cannot make it unready.
	GateMissing Gate = iota

	// GateUnset: the gate is in the spec and the condition was never written.
	GateUnset

	// GateFalse: the pod is kept off traffic.
	GateFalse

	// GateTrue: the gate does not keep the pod off traffic.
	GateTrue
)

// PodFacts is all that the state machine looks at.
type PodFacts struct {
	// Labels of the pod, all of them. Not modified.
	Labels map[string]string

	// Finalizers of the pod. Not modified.
	Finalizers []string

	// ExpectedFinalizers must be on the pod before it may become available; sorted.
	ExpectedFinalizers []string

	// ExpectedFinalizersErr is why the annotation cannot be read. It keeps the pod
	// from becoming available.
	ExpectedFinalizersErr error

	// Terminating: a deletion timestamp is set. Nothing is changed any more.
	Terminating bool

	Gate Gate

	// Ready: the condition Ready is True.
	Ready bool

	// ReadySince is when Ready last changed. Zero when it is not known.
	ReadySince time.Time

	// ContainersReady: the condition ContainersReady is True.
	ContainersReady bool

	// GatesOnly: the kubelet says that nothing but readiness gates keeps the pod from
	// being Ready, and every gate but ours is True. With our gate True the pod is as
	// good as Ready.
	GatesOnly bool
}

// FactsOf reads the facts from a pod. The result shares the pod's maps and slices.
func FactsOf(pod *corev1.Pod) PodFacts {
	facts := PodFacts{
		Labels:      pod.Labels,
		Finalizers:  pod.Finalizers,
		Terminating: pod.DeletionTimestamp != nil,
		Gate:        gateOf(pod),
	}
	facts.ExpectedFinalizers, facts.ExpectedFinalizersErr = expectedFinalizers(pod.Annotations)
	if ready := conditionOf(pod, corev1.PodReady); ready != nil {
		facts.Ready = ready.Status == corev1.ConditionTrue
		facts.ReadySince = ready.LastTransitionTime.Time
		facts.GatesOnly = !facts.Ready && ready.Reason == reasonReadinessGatesNotReady && otherGatesTrue(pod)
	}
	if c := conditionOf(pod, corev1.ContainersReady); c != nil {
		facts.ContainersReady = c.Status == corev1.ConditionTrue
	}
	return facts
}

// Controlled reports whether the pod is under PodOps.
func (f PodFacts) Controlled() bool {
	return f.Labels[appsv1alpha1.ControlLabelKey] == appsv1alpha1.ControlLabelValue
}

// Protected reports whether a protection finalizer is on the pod.
func (f PodFacts) Protected() bool {
	return slices.ContainsFunc(f.Finalizers, IsProtectionFinalizer)
}

// Permitted reports whether some id of the pod holds a permit and has not ended: from
// the permit until the pod is available again, or the id is undone.
func (f PodFacts) Permitted() bool {
	m := machine{facts: f, labels: f.Labels}
	return slices.ContainsFunc(idsOf(f.Labels), func(id string) bool { return m.isPermitted(id) || m.isFinished(id) })
}

// missingFinalizers are the expected finalizers that are not on the pod.
func (f PodFacts) missingFinalizers() []string {
	var missing []string
	for _, name := range f.ExpectedFinalizers {
		if !slices.Contains(f.Finalizers, name) {
			missing = append(missing, name)
		}
	}
	return missing
}

// IsProtectionFinalizer reports whether a finalizer holds back operate.
func IsProtectionFinalizer(name string) bool {
	return strings.HasPrefix(name, appsv1alpha1.ProtectionFinalizerPrefix)
}

// ParseAvailableConditions decodes the annotation AvailableConditionsAnnotationKey.
// An absent annotation is an empty value. The map of the result is never nil. It
// fails on malformed JSON, on more than MaxAnnotationBytes, and on an employer that
// expects no name: no pod would ever carry that finalizer.
func ParseAvailableConditions(annotations map[string]string) (appsv1alpha1.AvailableConditions, error) {
	none := appsv1alpha1.AvailableConditions{ExpectedFinalizers: map[string]string{}}
	text := annotations[appsv1alpha1.AvailableConditionsAnnotationKey]
	if len(text) > appsv1alpha1.MaxAnnotationBytes {
		return none, fmt.Errorf("%d bytes are more than the %d allowed", len(text), appsv1alpha1.MaxAnnotationBytes)
	}
	if text == "" {
		return none, nil
	}
	var conditions appsv1alpha1.AvailableConditions
	if err := json.Unmarshal([]byte(text), &conditions); err != nil {
		return none, fmt.Errorf("decoding JSON: %w", err)
	}
	if conditions.ExpectedFinalizers == nil {
		return none, nil
	}
	for _, employer := range slices.Sorted(maps.Keys(conditions.ExpectedFinalizers)) {
		if conditions.ExpectedFinalizers[employer] == "" {
			return none, fmt.Errorf("the finalizer of employer %q is empty", employer)
		}
	}
	return conditions, nil
}

func expectedFinalizers(annotations map[string]string) ([]string, error) {
	conditions, err := ParseAvailableConditions(annotations)
	if err != nil {
		return nil, err
	}
	return slices.Compact(slices.Sorted(maps.Values(conditions.ExpectedFinalizers))), nil
}

func gateOf(pod *corev1.Pod) Gate {
	inSpec := slices.ContainsFunc(pod.Spec.ReadinessGates, func(g corev1.PodReadinessGate) bool {
		return g.ConditionType == appsv1alpha1.ServiceReadyGate
	})
	if !inSpec {
		return GateMissing
	}
	condition := conditionOf(pod, appsv1alpha1.ServiceReadyGate)
	switch {
	case condition == nil:
		return GateUnset
	case condition.Status == corev1.ConditionTrue:
		return GateTrue
	default:
		return GateFalse
	}
}

func otherGatesTrue(pod *corev1.Pod) bool {
	for _, gate := range pod.Spec.ReadinessGates {
		if gate.ConditionType == appsv1alpha1.ServiceReadyGate {
			continue
		}
		if c := conditionOf(pod, gate.ConditionType); c == nil || c.Status != corev1.ConditionTrue {
			return false
		}
	}
	return true
}

func conditionOf(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}
