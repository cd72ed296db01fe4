package pod

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/lifecycle"
)

// Validator is the validating webhook of pods. It sees the request after all mutating
// webhooks.
type Validator struct {
	decoder  admission.Decoder
	identity string
	options  lifecycle.Options
	clock    clock.PassiveClock
}

// NewValidator returns the validating webhook; arguments as for NewMutator.
func NewValidator(decoder admission.Decoder, identity string, options lifecycle.Options, clk clock.PassiveClock) *Validator {
	return &Validator{decoder: decoder, identity: identity, options: options, clock: clk}
}

// Handle denies labels that only PodOps may set, broken pairs of labels, and a malformed
// annotation.
func (v *Validator) Handle(_ context.Context, req admission.Request) admission.Response {
	requested, old, err := decode(v.decoder, req)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if text := badAnnotation(old, requested); text != "" {
		return invalid(text)
	}
	if req.Operation == admissionv1.Create || isStale(old, requested) {
		return admission.Allowed("")
	}
	trusted := req.UserInfo.Username == v.identity
	expected := requesters(old, requested.Labels, requester(req, old, v.identity))
	if lifecycle.ParseRequesters(requested.Annotations).Forged(expected, requested.Labels) {
		return forged(appsv1alpha1.RequestersAnnotationKey)
	}
	if !trusted && forgesRecord(old, requested) {
		return forged(appsv1alpha1.PendingDeleteAnnotationKey)
	}
	denials := lifecycle.CheckUpdate(lifecycle.NewPodFacts(old), lifecycle.NewPodFacts(requested), trusted, v.options, v.clock.Now())
	if len(denials) > 0 {
		return denied(denials)
	}
	return admission.Allowed("")
}

// denied returns 403 for a label that the client may not set, and 422 for invalid labels of
// the client itself.
func denied(denials []lifecycle.Denial) admission.Response {
	text := lifecycle.DenialText(denials)
	if slices.ContainsFunc(denials, func(d lifecycle.Denial) bool { return lifecycle.IsOwned(d.Key) }) {
		return admission.Denied(text)
	}
	return invalid(text)
}

func invalid(text string) admission.Response {
	response := admission.Denied(text)
	response.Result.Code = http.StatusUnprocessableEntity
	response.Result.Reason = metav1.StatusReasonInvalid
	return response
}

// badAnnotation returns the error of an annotation that PodOps reads, if this request sets it;
// empty otherwise.
func badAnnotation(old, requested *corev1.Pod) string {
	for _, key := range []string{
		appsv1alpha1.SettleTimeAnnotationKey, appsv1alpha1.GateSyncPolicyAnnotationKey,
		appsv1alpha1.DrainEndpointAnnotationKey, appsv1alpha1.DrainTimeoutAnnotationKey,
	} {
		value, ok := requested.Annotations[key]
		if was, had := old.Annotations[key]; !ok || had && was == value {
			continue
		}
		if err := lifecycle.CheckSettings(map[string]string{key: value}); err != nil {
			return "metadata.annotations: " + err.Error()
		}
	}
	key := appsv1alpha1.AvailableConditionsAnnotationKey
	if requested.Annotations[key] == old.Annotations[key] {
		return ""
	}
	if _, err := lifecycle.ParseAvailableConditions(requested.Annotations); err != nil {
		return fmt.Sprintf(`metadata.annotations[%s]: %v; want {"expectedFinalizers": {"<employer>": "<finalizer>"}}`, key, err)
	}
	return ""
}
