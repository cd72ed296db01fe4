package pod

import (
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/podops-dev/podops/pkg/runtime/prune"
)

// decode returns the requested and the old pod; the old pod is empty for a CREATE, and the
// requested pod for a DELETE. A pod that exists has the fields of keptFields only, and without its status
// when it is requested. A new pod has all fields, because adapters may read each of them.
func decode(decoder admission.Decoder, req admission.Request) (requested, old *corev1.Pod, err error) {
	if req.Operation == admissionv1.Create {
		requested = &corev1.Pod{}
		if err := decoder.DecodeRaw(req.Object, requested); err != nil {
			return nil, nil, fmt.Errorf("decoding pod: %w", err)
		}
		return requested, &corev1.Pod{}, nil
	}
	if requested, err = decodeFields(req.Object.Raw, requestedFields()); err != nil {
		return nil, nil, fmt.Errorf("decoding pod: %w", err)
	}
	if old, err = decodeFields(req.OldObject.Raw, keptFields()); err != nil {
		return nil, nil, fmt.Errorf("decoding old pod: %w", err)
	}
	return requested, old, nil
}

// keptFields are the fields that pkg/core/lifecycle and pkg/core/deferreddelete read of a pod that exists:
// most of a pod are its containers, its volumes and its managedFields, which take ten times as
// long to decode.
func keptFields() []prune.Field {
	return []prune.Field{
		{Name: "metadata", Only: []prune.Field{
			{Name: "namespace"}, {Name: "name"}, {Name: "uid"}, {Name: "resourceVersion"}, {Name: "deletionTimestamp"}, {Name: "labels"},
			{Name: "annotations"}, {Name: "ownerReferences"}, {Name: "finalizers"},
		}},
		{Name: "spec", Only: []prune.Field{{Name: "readinessGates"}, {Name: "terminationGracePeriodSeconds"}}},
		{Name: "status", Only: []prune.Field{{Name: "phase"}, {Name: "conditions"}}},
	}
}

// requestedFields returns the fields that are read of a requested pod. Its status is not: the API server
// drops it after admission, so decisions use the status of the old pod.
func requestedFields() []prune.Field {
	return slices.DeleteFunc(keptFields(), func(field prune.Field) bool { return field.Name == "status" })
}

// decodeFields returns a pod with the fields that are in keep; an empty pod for no JSON.
func decodeFields(raw []byte, keep []prune.Field) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if len(raw) == 0 {
		return pod, nil
	}
	kept, err := prune.JSON(raw, keep)
	if err != nil {
		return nil, err
	}
	return pod, json.Unmarshal(kept, pod, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}
