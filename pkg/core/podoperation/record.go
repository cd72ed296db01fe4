package podoperation

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/runtime/text"
)

// Record lists the actions of a PodOperation on a pod, in the annotation RecordKey.
type Record struct {
	// Containers are the containers that the action replaces, with the IDs that they had before.
	Containers map[string]string `json:"containers,omitempty"`

	// Images are the images that these containers had in the spec before.
	Images map[string]string `json:"images,omitempty"`

	// Done is true when the action is over and the lifecycle has finished.
	Done bool `json:"done,omitempty"`

	// Failed is the cause for which the action failed, at most MaxPodMessageBytes long.
	Failed string `json:"failed,omitempty"`
}

// ID returns the id of a PodOperation's lifecycles.
func ID(operation types.UID) string { return appsv1alpha1.PodOperationIDPrefix + string(operation) }

// RecordKey returns the key of the annotation with the Record of a PodOperation.
func RecordKey(operation types.UID) string {
	return appsv1alpha1.PodOperationAnnotationPrefix + "/" + string(operation)
}

// String returns the value of the annotation.
func (r Record) String() string {
	r.Failed = text.Line(r.Failed, appsv1alpha1.MaxPodMessageBytes)
	value, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings and a bool are always encoded
	}
	return string(value)
}

// readRecord returns the record of a PodOperation on a pod. A malformed record counts as a failure: the
// pod may have been operated on.
func readRecord(operation types.UID, pod *corev1.Pod) (record Record, found bool) {
	return parse(pod.Annotations[RecordKey(operation)])
}

func parse(value string) (record Record, found bool) {
	if value == "" {
		return Record{}, false
	}
	if len(value) > appsv1alpha1.MaxAnnotationBytes {
		return Record{Failed: "the record of the operation on the pod is too long"}, true
	}
	if err := json.Unmarshal([]byte(value), &record); err != nil {
		return Record{Failed: fmt.Sprintf("the record of the operation on the pod is malformed: %v", err)}, true
	}
	return record, true
}

// IsOperated reports whether a PodOperation has written its action to a pod, according to its record.
func IsOperated(operation types.UID, pod metav1.Object) bool {
	record, found := parse(pod.GetAnnotations()[RecordKey(operation)])
	return found && record.Failed == ""
}
