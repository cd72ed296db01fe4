package pod

import (
	"encoding/json"
	"maps"

	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/pkg/webhooks/review"
)

// expectedPatch records in the annotation of a new pod the finalizers that its employers
// will put on it. A malformed annotation stays as it is: the pod will not become available,
// and an event reports the error.
func expectedPatch(pod *corev1.Pod, expected map[string]string) []jsonpatch.Operation {
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
	if pod.Annotations == nil {
		annotations := map[string]string{appsv1alpha1.AvailableConditionsAnnotationKey: string(value)}
		return []jsonpatch.Operation{jsonpatch.NewOperation("add", "/metadata/annotations", annotations)}
	}
	return []jsonpatch.Operation{jsonpatch.NewOperation("add", review.AnnotationPath(appsv1alpha1.AvailableConditionsAnnotationKey), string(value))}
}
