package webhookclient

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
)

// PostRequest requests the approval of pods from a service.
type PostRequest struct {
	// TraceID is unique to the request.
	TraceID string `json:"traceId"`

	// Stage is PreCheck or PostCheck.
	Stage string `json:"stage"`

	// RuleName is the name of the rule within its PodTransitionRule.
	RuleName string `json:"ruleName"`

	// Resources are the pods.
	Resources []Resource `json:"resources"`

	// Namespace and PodTransitionRule identify the rule.
	Namespace         string `json:"namespace"`
	PodTransitionRule string `json:"podTransitionRule"`

	// OperationTypes are the types of the waiting lifecycles, sorted.
	OperationTypes []string `json:"operationTypes"`
}

// Resource is one pod of a request.
type Resource struct {
	// APIVersion is "v1" and Kind is "Pod".
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`

	// Parameters are the parameters of the rule, evaluated for this pod.
	Parameters map[string]string `json:"parameters"`

	UID string `json:"uid"`

	// Owner is the workload at the top of the controller chain; nil without a known workload.
	Owner *ResourceOwner `json:"owner,omitempty"`

	// Revision is the revision of the pod template that the pod was made from: the label
	// pod-template-hash, or else controller-revision-hash. Empty if the pod has neither.
	Revision string `json:"revision,omitempty"`

	// RevisionState is the role of the revision in the rollout of the workload, as in
	// rule.RevisionState. Empty while it is not known.
	RevisionState string `json:"revisionState,omitempty"`

	// Labels are the labels of the pod without labels of lifecycles: the first by key that take at
	// most maxLabelBytes together.
	Labels map[string]string `json:"labels,omitempty"`

	// Cause is why the ReplicaSet deletes the pod, as in rule.Cause. Empty for every other
	// operation, and while it is not known.
	Cause string `json:"cause,omitempty"`
}

// ResourceOwner is the workload that a pod belongs to.
type ResourceOwner struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

// maxLabelBytes bounds the labels of one pod in a request.
const maxLabelBytes = 4 << 10

// BoundedLabels returns the first labels by key that take at most maxLabelBytes together, without
// labels for which skip returns true.
func BoundedLabels(labels map[string]string, skip func(key string) bool) map[string]string {
	bounded, size := map[string]string{}, 0
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if skip(key) {
			continue
		}
		if size += len(key) + len(labels[key]); size > maxLabelBytes {
			break
		}
		bounded[key] = labels[key]
	}
	return bounded
}

// bytes returns the size of a resource's texts.
func (r Resource) bytes() int {
	size := len(r.Name) + len(r.UID)
	for _, texts := range []map[string]string{r.Parameters, r.Labels} {
		for key, value := range texts {
			size += len(key) + len(value)
		}
	}
	return size
}

// PodResource returns the resource of a pod. Nil parameters are empty.
func PodResource(name, uid string, parameters map[string]string) Resource {
	return Resource{APIVersion: "v1", Kind: "Pod", Name: name, UID: uid, Parameters: parameters}
}

// MaxRequestBytes bounds the body of a POST. Parameters from annotations can be long.
const MaxRequestBytes = 1 << 20

// encode returns the body of a POST: JSON without a line break at its end, with empty lists and
// maps in place of null, since services index into them.
func (r PostRequest) encode() ([]byte, error) {
	resources := make([]Resource, len(r.Resources))
	for i, resource := range r.Resources {
		if resource.Parameters == nil {
			resource.Parameters = map[string]string{}
		}
		resources[i] = resource
	}
	r.Resources = resources
	if r.OperationTypes == nil {
		r.OperationTypes = []string{}
	}
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	// Services compare values byte by byte, so "&" must not be escaped.
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(r); err != nil {
		return nil, fail(ClassInternal, "encoding the request: %v", err)
	}
	encoded := bytes.TrimSuffix(body.Bytes(), []byte("\n"))
	if len(encoded) > MaxRequestBytes {
		return nil, fail(ClassConfiguration, "the request about %d pods is %d bytes long, at most %d are sent: take parameters with long values out of the rule",
			len(r.Resources), len(encoded), MaxRequestBytes)
	}
	return encoded, nil
}
