package pod

import (
	"encoding/json"
	"maps"

	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
)

// expectedChange records in the annotation of a new pod the finalizers that its employers
// will put on it. A malformed annotation stays as it is: the pod will not become available,
// and an event reports the error.
func expectedChange(pod *corev1.Pod, expected map[string]string) map[string]any {
	conditions, err := lifecycle.ParseAvailableConditions(pod.Annotations)
	if err != nil || len(expected) == 0 {
		return nil
	}
	merged := maps.Clone(conditions.ExpectedFinalizers)
	maps.Copy(merged, expected)
	if maps.Equal(merged, conditions.ExpectedFinalizers) {
		return nil
	}
	value, err := json.Marshal(appsv1alpha1.AvailableConditions{ExpectedFinalizers: merged})
	if err != nil || len(value) > appsv1alpha1.MaxAnnotationBytes {
		return nil // the controllers of the employers report it
	}
	return map[string]any{appsv1alpha1.AvailableConditionsAnnotationKey: string(value)}
}
