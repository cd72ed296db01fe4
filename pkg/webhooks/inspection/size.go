package inspection

import (
	"bytes"
	"encoding/json"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/podops-dev/podops/pkg/core/objectbounds"
)

// outline is the part that is decoded from an object of unknown size.
type outline struct {
	Metadata struct {
		Name              string       `json:"name"`
		DeletionTimestamp *metav1.Time `json:"deletionTimestamp"`
	} `json:"metadata"`
	Spec json.RawMessage `json:"spec"`
}

// BySize responds to a request whose spec has more than most bytes before the spec is decoded: it is
// denied, unless the object is terminating or the spec stays as it is stored, because finalizers
// and labels of objects from before the bound must be removable. decided is false when the spec is
// within the bound, or cannot be read; the response is meaningless then.
func BySize(req admission.Request, kind schema.GroupKind, most int) (response admission.Response, decided bool) {
	requested := outline{}
	if err := json.Unmarshal(req.Object.Raw, &requested); err != nil {
		return admission.Response{}, false
	}
	errs := objectbounds.Encoded(requested.Spec, most)
	if len(errs) == 0 {
		return admission.Response{}, false
	}
	stored := outline{}
	switch {
	case requested.Metadata.DeletionTimestamp != nil:
		return admission.Allowed(""), true
	case req.Operation == admissionv1.Update && json.Unmarshal(req.OldObject.Raw, &stored) == nil && bytes.Equal(requested.Spec, stored.Spec):
		return admission.Allowed(""), true
	default:
		return Invalid(kind, requested.Metadata.Name, errs), true
	}
}
