package lifecycle

import (
	"encoding/json"
	"errors"
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

// Gate is the state of the readiness gate service-ready of a pod.
type Gate int

const (
	// GateMissing means that the pod was created without the gate. Finalizers still protect it,
	// but PodOps cannot make it unready.
	GateMissing Gate = iota

	// GateUnset means that the gate is in the spec and the condition was never written.
	GateUnset

	// GateFalse means that the pod is kept off traffic.
	GateFalse

	// GateTrue means that the gate does not keep the pod off traffic.
	GateTrue
)

// PodFacts is the input of the state machine.
type PodFacts struct {
	// Labels of the pod, all of them. Not modified.
	Labels map[string]string

	// Finalizers of the pod. Not modified.
	Finalizers []string

	// Expected maps each employer that the annotation available-conditions names to the
	// finalizer that must be on the pod before it may become available. Not modified.
	Expected map[string]string

	// Gone are employers in Expected that do not exist or do not select the pod, sorted;
	// nil where the Services were not read. The pod does not wait for their finalizers.
	Gone []string

	// ExpectedFinalizersErr is the error of reading the annotation. It keeps the pod
	// from becoming available.
	ExpectedFinalizersErr error

	// Terminating is true if a deletion timestamp is set. Nothing is changed any more.
	Terminating bool

	Gate Gate

	// HasCreateRules is true if PostCheck rules apply to the creation of the pod. It is read while the gate was never written,
	// and has no effect afterwards.
	HasCreateRules bool

	// GateSince is when the gate last changed. Zero if unknown.
	GateSince time.Time

	// Ready is true if the condition Ready is True.
	Ready bool

	// ReadySince is when Ready last changed, by the clock of the kubelet. Zero if unknown. No
	// wait is measured by it.
	ReadySince time.Time

	// SteadyFor is for how long the present Readiness has been observed. Waits are measured
	// by it. Zero for a state that was not observed before: waits begin.
	SteadyFor time.Duration

	// NotSyncing is true if the gate carries the reason that the kubelet did not follow it in time.
	NotSyncing bool

	// Services is whether a Service selects the pod whose controller does not protect it.
	Services Services

	// SettleTime and GateSyncPolicy are set by the pod's annotations; nil and empty where the
	// settings of the manager apply. AnnotationErr is the error from reading one of them.
	SettleTime     *time.Duration
	GateSyncPolicy string
	AnnotationErr  error

	// DrainEndpoint is set by the pod's annotations. Drained is true once it has confirmed that no connection is left, or does
	// not have to: no container runs, or the time-out has passed. DrainAnswer is its last answer, for messages; empty before
	// the first.
	DrainEndpoint DrainEndpoint
	Drained       bool
	DrainAnswer   string

	// DrainCheck is how soon Drained is checked again; zero: after a second.
	DrainCheck time.Duration

	// Conditions are the messages of PodOps conditions that are True on the pod, by
	// type, without the gate; nil if none is True.
	Conditions map[string]string

	// ContainersReady is true if the condition ContainersReady is True.
	ContainersReady bool

	// GatesOnly is true if, according to the kubelet, only readiness gates keep the pod from
	// being Ready, and every gate except the gate of PodOps is True. Once the gate of PodOps
	// is True, such a pod counts as Ready.
	GatesOnly bool
}

var errDrainsHost = errors.New("annotation " + appsv1alpha1.DrainEndpointAnnotationKey +
	" has no effect on a pod with hostNetwork, whose address is its node's")

// NewPodFacts reads the facts from a pod. The result shares the pod's maps and slices.
func NewPodFacts(pod *corev1.Pod) PodFacts {
	facts := PodFacts{
		Labels:      pod.Labels,
		Finalizers:  pod.Finalizers,
		Terminating: pod.DeletionTimestamp != nil,
		Gate:        readGate(pod),
	}
	if gate := findCondition(pod, appsv1alpha1.ServiceReadyGate); gate != nil {
		facts.GateSince = gate.LastTransitionTime.Time
		facts.NotSyncing = gate.Reason == appsv1alpha1.ReasonKubeletNotSyncing
	}
	conditions, err := ParseAvailableConditions(pod.Annotations)
	facts.Expected, facts.ExpectedFinalizersErr = conditions.ExpectedFinalizers, err
	set, err := readSettings(pod.Annotations)
	facts.SettleTime, facts.GateSyncPolicy, facts.DrainEndpoint, facts.AnnotationErr = set.settle, set.policy, set.drain, err
	if pod.Spec.HostNetwork && facts.DrainEndpoint.Port != 0 {
		// The address is that of the node: the port may be another program's.
		facts.DrainEndpoint, facts.AnnotationErr = DrainEndpoint{}, errDrainsHost
	}
	facts.Conditions = conditionStatuses(pod)
	if ready := findCondition(pod, corev1.PodReady); ready != nil {
		facts.Ready = ready.Status == corev1.ConditionTrue
		facts.ReadySince = ready.LastTransitionTime.Time
		facts.GatesOnly = !facts.Ready && ready.Reason == reasonReadinessGatesNotReady && otherGatesTrue(pod)
	}
	if c := findCondition(pod, corev1.ContainersReady); c != nil {
		facts.ContainersReady = c.Status == corev1.ConditionTrue
	}
	return facts
}

// Controlled reports whether the pod is under PodOps.
func (f PodFacts) Controlled() bool {
	return appsv1alpha1.IsControlled(f.Labels)
}

// Protected reports whether a protection finalizer is on the pod.
func (f PodFacts) Protected() bool {
	return slices.ContainsFunc(f.Finalizers, IsProtectionFinalizer)
}

// Permitted reports whether some id of the pod holds a permit and has not ended: from
// the permit until the pod is available again, or the id is undone.
func (f PodFacts) Permitted() bool {
	m := machine{facts: f, labels: f.Labels}
	return slices.ContainsFunc(operationIDs(f.Labels), func(id string) bool { return m.isPermitted(id) || m.isFinished(id) })
}

// ExpectedFinalizers returns the finalizers that must be on the pod before it may become
// available, sorted.
func (f PodFacts) ExpectedFinalizers() []string {
	var names []string
	for employer, name := range f.Expected {
		if !slices.Contains(f.Gone, employer) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Missing returns the employers in Expected, including the employers in Gone, whose finalizer
// is not on the pod; sorted. The controller of an employer that no longer exists removes its
// finalizer and its entry in the annotation together, so an entry stays as long as the
// finalizer.
func (f PodFacts) Missing() []string {
	var employers []string
	for employer, name := range f.Expected {
		if !slices.Contains(f.Finalizers, name) {
			employers = append(employers, employer)
		}
	}
	slices.Sort(employers)
	return employers
}

// complete reports whether every expected finalizer is on the pod.
func (f PodFacts) complete() bool {
	return f.ExpectedFinalizersErr == nil && !slices.ContainsFunc(f.ExpectedFinalizers(), func(name string) bool {
		return !slices.Contains(f.Finalizers, name)
	})
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

func readGate(pod *corev1.Pod) Gate {
	inSpec := slices.ContainsFunc(pod.Spec.ReadinessGates, func(g corev1.PodReadinessGate) bool {
		return g.ConditionType == appsv1alpha1.ServiceReadyGate
	})
	if !inSpec {
		return GateMissing
	}
	condition := findCondition(pod, appsv1alpha1.ServiceReadyGate)
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
		if c := findCondition(pod, gate.ConditionType); c == nil || c.Status != corev1.ConditionTrue {
			return false
		}
	}
	return true
}

func findCondition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}
