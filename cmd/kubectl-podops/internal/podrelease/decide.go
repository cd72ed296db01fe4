package podrelease

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/core/replicasetscale"
	"github.com/podops-dev/podops/pkg/core/surge"
)

// Decision contains the changes to a pod so that it serves without PodOps.
type Decision struct {
	// Change is written to pods/status: it removes lifecycle labels and annotations, and opens the gate.
	Change lifecycle.Change

	// Finalizers are the finalizers to remove, in the order of the pod.
	Finalizers []string

	// Owners are the owner references of a pod that surges from then on; nil for other pods.
	Owners []metav1.OwnerReference
}

// IsEmpty reports whether nothing must be written.
func (d Decision) IsEmpty() bool {
	return d.Change.IsEmpty() && len(d.Finalizers) == 0 && d.Owners == nil
}

// Decide returns the Decision for a pod, controlled or not. goes reports whether the owner of a
// protection finalizer is removed with PodOps. Decide does not modify the pod. With the Decision
// applied, the next Decision is empty.
func Decide(pod *corev1.Pod, goes func(finalizer string) bool, now time.Time) Decision {
	facts := lifecycle.NewPodFacts(pod)
	facts.Labels = maps.Clone(pod.Labels)
	delete(facts.Labels, appsv1alpha1.ControlLabelKey)
	decision := Decision{Change: lifecycle.Advance(facts, lifecycle.Permits{}, lifecycle.Options{}, now)}
	for _, name := range pod.Finalizers {
		if lifecycle.IsProtectionFinalizer(name) && goes(name) {
			decision.Finalizers = append(decision.Finalizers, name)
		}
	}
	if facts.Terminating {
		// The kubelet stops the pod: only finalizers hold it back.
		return decision
	}
	for _, key := range slices.Sorted(maps.Keys(pod.Annotations)) {
		if isOurs(key) || key == appsv1alpha1.AvailableConditionsAnnotationKey && expectsOnly(pod, goes) {
			if decision.Change.Annotations == nil {
				decision.Change.Annotations = map[string]*string{}
			}
			decision.Change.Annotations[key] = nil
		}
	}
	owners, changes := surge.Release(pod)
	decision.Owners = owners
	if changes == nil {
		changes = map[string]any{}
	}
	maps.Copy(changes, replicasetscale.Unpin(pod))
	for key, value := range changes {
		if decision.Change.Annotations == nil {
			decision.Change.Annotations = map[string]*string{}
		}
		decision.Change.Annotations[key] = nil
		if text, ok := value.(string); ok {
			decision.Change.Annotations[key] = &text
		}
	}
	return decision
}

// isOurs reports whether an annotation has no meaning without PodOps.
func isOurs(key string) bool {
	switch key {
	case appsv1alpha1.PendingDeleteAnnotationKey, appsv1alpha1.RequestersAnnotationKey, appsv1alpha1.UnstuckAnnotationKey:
		return true
	}
	switch prefix, _, _ := strings.Cut(key, "/"); prefix {
	case appsv1alpha1.DetailAnnotationPrefix, appsv1alpha1.PodOperationAnnotationPrefix:
		return true
	default:
		return false
	}
}

// expectsOnly reports whether every expected finalizer of the pod is removed. A malformed
// annotation expects no finalizer.
func expectsOnly(pod *corev1.Pod, goes func(string) bool) bool {
	conditions, err := lifecycle.ParseAvailableConditions(pod.Annotations)
	if err != nil {
		return true
	}
	for _, finalizer := range conditions.ExpectedFinalizers {
		if !goes(finalizer) {
			return false
		}
	}
	return true
}
