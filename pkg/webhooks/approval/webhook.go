// Package approval contains the admission webhooks that record who decides: who wrote a workload's pod template, and
// the approver of a PodOperationApproval. Admission policies of the manifests deny other names, also while no manager runs.
package approval

import (
	"context"
	"fmt"
	"net/http"

	"gomodules.xyz/jsonpatch/v2"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/approval"
	"github.com/podops-dev/podops/pkg/webhooks/review"
)

// Paths under which the handlers are served; the manifests name them.
const (
	AuthorMutatePath   = "/mutate-apps-v1-template-author"
	ApproverMutatePath = "/mutate-apps-kusionstack-io-v1alpha1-podoperationapproval"
)

// AuthorMutator is the mutating webhook of Deployments, StatefulSets and DaemonSets: it records who wrote the pod template.
type AuthorMutator struct{ decoder admission.Decoder }

// NewAuthorMutator returns the webhook.
func NewAuthorMutator(decoder admission.Decoder) *AuthorMutator {
	return &AuthorMutator{decoder: decoder}
}

// Handle sets the annotation with the author when the pod template changes, and keeps it otherwise.
func (m *AuthorMutator) Handle(_ context.Context, req admission.Request) admission.Response {
	object, err := m.decode(req.Kind.Kind, req.Object)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	known := ""
	changed := true
	if len(req.OldObject.Raw) > 0 {
		old, err := m.decode(req.Kind.Kind, req.OldObject)
		if err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		known = old.GetAnnotations()[appsv1alpha1.TemplateAuthorAnnotationKey]
		changed = !equality.Semantic.DeepEqual(approval.Template(old), approval.Template(object))
	}
	author := known
	if changed {
		author = approval.AuthorAnnotation(known, approval.Revision(approval.Template(object)), req.UserInfo.Username)
	}
	return admission.Patched("", annotate(object.GetAnnotations(), appsv1alpha1.TemplateAuthorAnnotationKey, author)...)
}

func (m *AuthorMutator) decode(kind string, raw runtime.RawExtension) (client.Object, error) {
	var object client.Object
	switch kind {
	case "Deployment":
		object = &appsv1.Deployment{}
	case "StatefulSet":
		object = &appsv1.StatefulSet{}
	case "DaemonSet":
		object = &appsv1.DaemonSet{}
	default:
		return nil, fmt.Errorf("the kind %q has no author: the webhook configuration does not fit the manager", kind)
	}
	if err := m.decoder.DecodeRaw(raw, object); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", kind, err)
	}
	return object, nil
}

// annotate returns the patch that gives an annotation a value; an empty value removes it.
func annotate(annotations map[string]string, key, value string) []jsonpatch.Operation {
	now, present := annotations[key]
	switch {
	case now == value:
		return nil
	case value == "" && present:
		return []jsonpatch.Operation{jsonpatch.NewOperation("remove", review.AnnotationPath(key), nil)}
	case annotations == nil:
		return []jsonpatch.Operation{jsonpatch.NewOperation("add", "/metadata/annotations", map[string]string{key: value})}
	default:
		return []jsonpatch.Operation{jsonpatch.NewOperation("add", review.AnnotationPath(key), value)}
	}
}

// ApproverMutator is the mutating webhook of PodOperationApprovals: it records who creates one.
type ApproverMutator struct{ decoder admission.Decoder }

// NewApproverMutator returns the webhook.
func NewApproverMutator(decoder admission.Decoder) *ApproverMutator {
	return &ApproverMutator{decoder: decoder}
}

// Handle sets the approver where it is missing.
func (m *ApproverMutator) Handle(_ context.Context, req admission.Request) admission.Response {
	object := &appsv1alpha1.PodOperationApproval{}
	if err := m.decoder.DecodeRaw(req.Object, object); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decoding PodOperationApproval: %w", err))
	}
	if object.Spec.Approver != "" {
		return admission.Allowed("")
	}
	return admission.Patched("", jsonpatch.NewOperation("add", "/spec/approver", req.UserInfo.Username))
}
