package pod

import (
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/podops-dev/podops/pkg/prune"
)

// decode returns the requested and the old pod; the old pod is empty for a CREATE, and the
// requested pod for a DELETE. A pod that exists has the fields of podFields only, and without its status
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

// podFields are the fields that pkg/lifecycle and pkg/deferreddelete read of a pod that exists:
// most of a pod are its containers, its volumes and its managedFields, which take ten times as
// long to decode.
type podFields struct {
	Metadata struct {
		Namespace         string                  `json:"namespace"`
		Name              string                  `json:"name"`
		UID               types.UID               `json:"uid"`
		ResourceVersion   string                  `json:"resourceVersion"`
		DeletionTimestamp *metav1.Time            `json:"deletionTimestamp"`
		Labels            map[string]string       `json:"labels"`
		Annotations       map[string]string       `json:"annotations"`
		OwnerReferences   []metav1.OwnerReference `json:"ownerReferences"`
		Finalizers        []string                `json:"finalizers"`
	} `json:"metadata"`
	Spec struct {
		ReadinessGates                []corev1.PodReadinessGate `json:"readinessGates"`
		TerminationGracePeriodSeconds *int64                    `json:"terminationGracePeriodSeconds"`
	} `json:"spec"`
	Status struct {
		Phase      corev1.PodPhase       `json:"phase"`
		Conditions []corev1.PodCondition `json:"conditions"`
	} `json:"status"`
}

// keptFields returns the names of podFields.
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

// requestedFields returns the names of podFields that are read of a requested pod. Its status is not: the API server
// drops it after admission, so decisions use the status of the old pod.
func requestedFields() []prune.Field {
	return slices.DeleteFunc(keptFields(), func(field prune.Field) bool { return field.Name == "status" })
}

// decodeFields returns a pod with the fields of podFields that are in keep; an empty pod for no JSON.
func decodeFields(raw []byte, keep []prune.Field) (*corev1.Pod, error) {
	if len(raw) == 0 {
		return &corev1.Pod{}, nil
	}
	kept, err := prune.JSON(raw, keep)
	if err != nil {
		return nil, err
	}
	var fields podFields
	if err := json.Unmarshal(kept, &fields, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)); err != nil {
		return nil, err
	}
	meta := fields.Metadata
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: meta.Namespace, Name: meta.Name, UID: meta.UID, ResourceVersion: meta.ResourceVersion, DeletionTimestamp: meta.DeletionTimestamp,
			Labels: meta.Labels, Annotations: meta.Annotations, OwnerReferences: meta.OwnerReferences, Finalizers: meta.Finalizers,
		},
		Spec: corev1.PodSpec{
			ReadinessGates: fields.Spec.ReadinessGates, TerminationGracePeriodSeconds: fields.Spec.TerminationGracePeriodSeconds,
		},
		Status: corev1.PodStatus{Phase: fields.Status.Phase, Conditions: fields.Status.Conditions},
	}, nil
}
