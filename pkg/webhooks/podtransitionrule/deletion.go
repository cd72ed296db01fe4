package podtransitionrule

import (
	"context"
	"fmt"
	"net/http"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/state/podindex"
)

// DeletePath is the path of DeleteWarner.
const DeletePath = "/delete-apps-kusionstack-io-v1alpha1-podtransitionrule"

// DeleteWarner is the webhook of DELETE. It allows every deletion, and warns if the rule withholds
// pods or has permitted pods.
type DeleteWarner struct{ decoder admission.Decoder }

// NewDeleteWarner returns the webhook.
func NewDeleteWarner(decoder admission.Decoder) *DeleteWarner { return &DeleteWarner{decoder: decoder} }

// Handle allows the deletion, with a warning if pods depend on the rule. It uses the stored
// object only.
func (w *DeleteWarner) Handle(_ context.Context, req admission.Request) admission.Response {
	rule := &appsv1alpha1.PodTransitionRule{}
	if err := w.decoder.DecodeRaw(req.OldObject, rule); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decoding PodTransitionRule: %w", err))
	}
	response := admission.Allowed("")
	if warning := deletionWarning(rule); warning != "" && rule.DeletionTimestamp == nil {
		response.Warnings = []string{warning}
	}
	return response
}

// deletionWarning returns the consequences of a rule's deletion; "" when no pod waits
// and no pod is permitted.
func deletionWarning(rule *appsv1alpha1.PodTransitionRule) string {
	status := rule.Status
	reserved := status.Permits != nil && len(status.Permits.Reserved) > 0
	if status.Waiting == 0 && status.Available >= status.Desired && !reserved {
		return ""
	}
	return fmt.Sprintf("PodTransitionRule %q: %d of %d desired pods are available and %d wait; they are held for %s more, "+
		"and then nothing of this rule holds them, unless a rule of the same name is created before",
		rule.Name, status.Available, status.Desired, status.Waiting, podindex.RetiredFor)
}
