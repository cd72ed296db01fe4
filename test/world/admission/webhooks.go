package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	webhookerrors "k8s.io/apiserver/pkg/admission/plugin/webhook/errors"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/generic"
	webhookrequest "k8s.io/apiserver/pkg/admission/plugin/webhook/request"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"

	"github.com/podops-dev/podops/test/world/apiserver"
)

// mutate calls the mutating webhooks that concern a request, and those to call again once more when a later one changed
// the object.
func (c *Chain) mutate(ctx context.Context, r *apiserver.Request) error {
	var again []hook
	lastChange := -1
	for i, h := range c.configuration.mutating {
		called, changed, err := c.mutateBy(ctx, r, h)
		if err != nil {
			return err
		}
		if changed {
			lastChange = i
		}
		if called && h.again {
			again = append(again, h)
		}
	}
	for _, h := range again {
		if slices.IndexFunc(c.configuration.mutating, func(other hook) bool { return other.GetUID() == h.GetUID() }) >= lastChange {
			continue
		}
		if _, _, err := c.mutateBy(ctx, r, h); err != nil {
			return err
		}
	}
	return nil
}

// mutateBy calls a mutating webhook if it concerns the request.
func (c *Chain) mutateBy(ctx context.Context, r *apiserver.Request, h hook) (called, changed bool, err error) {
	attributes := attributesFor(r)
	concerned, err := c.concerns(ctx, h, attributes)
	if err != nil || !concerned {
		return false, false, err
	}
	result, err := c.review(ctx, r, h, attributes)
	if err != nil || result == nil {
		return true, false, err
	}
	r.Warnings = append(r.Warnings, result.Warnings...)
	if !result.Allowed {
		return true, false, webhookerrors.ToStatusErr(h.GetName(), result.Result)
	}
	if len(result.Patch) == 0 {
		return true, false, nil
	}
	patched, err := patch(attributes.VersionedObject.Object(), result.Patch)
	if err != nil {
		return true, false, apierrors.NewInternalError(fmt.Errorf("webhook %q: %w", h.GetName(), err))
	}
	changed = !apiequality.Semantic.DeepEqual(attributes.VersionedObject.Object(), patched)
	r.Object = patched
	return true, changed, nil
}

// patch returns a copy of an object after a JSON patch.
func patch(object runtime.Object, operations []byte) (runtime.Object, error) {
	decoded, err := jsonpatch.DecodePatch(operations)
	if err != nil {
		return nil, fmt.Errorf("decode the patch: %w", err)
	}
	before, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encode the object: %w", err)
	}
	after, err := decoded.Apply(before)
	if err != nil {
		return nil, fmt.Errorf("apply the patch: %w", err)
	}
	patched, ok := reflect.New(reflect.TypeOf(object).Elem()).Interface().(runtime.Object)
	if !ok {
		return nil, fmt.Errorf("%T is not an object", object)
	}
	if err := json.Unmarshal(after, patched); err != nil {
		return nil, fmt.Errorf("decode the patched object: %w", err)
	}
	return patched, nil
}

// outcome is the end of a call of a validating webhook.
type outcome struct {
	at       time.Time
	err      error
	warnings []string
}

// validate calls all validating webhooks that concern a request at once, those of others among them, and waits for all
// of them. The first denial counts.
func (c *Chain) validate(ctx context.Context, r *apiserver.Request, attributes *admission.VersionedAttributes, others objections) error {
	var calls []func() outcome
	for _, h := range c.configuration.validating {
		concerned, err := c.concerns(ctx, h, attributes)
		if err != nil {
			return err
		}
		if concerned {
			calls = append(calls, func() outcome { return c.validateBy(ctx, r, h, attributes) })
		}
	}
	for _, objection := range others {
		calls = append(calls, func() outcome {
			if err := objection.wait(ctx); err != nil {
				return outcome{err: apierrors.NewTimeoutError(err.Error(), 0)}
			}
			return outcome{err: objections{objection}.denial(r)}
		})
	}
	outcomes := make([]outcome, len(calls))
	var running sync.WaitGroup
	for i, call := range calls {
		running.Go(func() {
			outcomes[i] = call()
			outcomes[i].at = time.Now()
		})
	}
	running.Wait()
	slices.SortStableFunc(outcomes, func(a, b outcome) int { return a.at.Compare(b.at) })
	var first error
	for _, o := range outcomes {
		r.Warnings = append(r.Warnings, o.warnings...)
		if first == nil {
			first = o.err
		}
	}
	return first
}

func (c *Chain) validateBy(ctx context.Context, r *apiserver.Request, h hook, attributes *admission.VersionedAttributes) outcome {
	result, err := c.review(ctx, r, h, attributes)
	if err != nil || result == nil {
		return outcome{err: err}
	}
	if !result.Allowed {
		return outcome{err: webhookerrors.ToStatusErr(h.GetName(), result.Result), warnings: result.Warnings}
	}
	return outcome{warnings: result.Warnings}
}

// concerns reports whether a webhook is called for a request.
func (c *Chain) concerns(ctx context.Context, h hook, attributes *admission.VersionedAttributes) (bool, error) {
	if !h.scope.contains(attributes, c.labels) {
		return false, nil
	}
	matched := h.conditions.Match(ctx, attributes, nil, authorizing(c.options.Authorize))
	if matched.Error != nil {
		return false, apierrors.NewForbidden(attributes.GetResource().GroupResource(), attributes.GetName(), matched.Error)
	}
	return matched.Matches, nil
}

// review sends a review to a manager. The result is nil if the call failed and the webhook ignores that.
func (c *Chain) review(
	ctx context.Context, r *apiserver.Request, h hook, attributes *admission.VersionedAttributes,
) (*webhookrequest.AdmissionResponse, error) {
	if sideEffects := h.GetSideEffects(); r.DryRun && *sideEffects != admissionregistrationv1.SideEffectClassNone &&
		*sideEffects != admissionregistrationv1.SideEffectClassNoneOnDryRun {
		return nil, webhookerrors.NewDryRunUnsupportedErr(h.GetName())
	}
	result, err := c.call(ctx, r, h, attributes)
	if err == nil {
		return result, nil
	}
	if *h.GetFailurePolicy() == admissionregistrationv1.Ignore {
		if ctx.Err() != nil {
			return nil, apierrors.NewTimeoutError("request did not complete within requested timeout", 0)
		}
		return nil, nil
	}
	return nil, apierrors.NewInternalError(&webhookutil.ErrCallingWebhook{WebhookName: h.GetName(), Reason: err})
}

// call sends a review to one of the managers that are ready, within the timeout of the webhook.
func (c *Chain) call(
	ctx context.Context, r *apiserver.Request, h hook, attributes *admission.VersionedAttributes,
) (*webhookrequest.AdmissionResponse, error) {
	uid, review, response, err := webhookrequest.CreateAdmissionObjects(attributes, &generic.WebhookInvocation{
		Webhook: h, Resource: attributes.GetResource(), Subresource: attributes.GetSubresource(), Kind: attributes.VersionedKind,
	})
	if err != nil {
		return nil, fmt.Errorf("could not create admission objects: %w", err)
	}
	review.GetObjectKind().SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"))
	body, err := json.Marshal(review)
	if err != nil {
		return nil, fmt.Errorf("encode the review: %w", err)
	}
	timeout := time.Duration(*h.GetTimeoutSeconds()) * time.Second
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	service := h.GetClientConfig().Service
	if service == nil || service.Path == nil {
		return nil, errors.New("only a webhook of a service is called")
	}
	answer, err := c.send(ctx, r, *service.Path, body)
	if err != nil {
		url := fmt.Sprintf("https://%s.%s.svc:443%s?timeout=%s", service.Name, service.Namespace, *service.Path, timeout)
		return nil, fmt.Errorf("failed to call webhook: Post %q: %w", url, err)
	}
	if err := json.NewDecoder(bytes.NewReader(answer)).Decode(response); err != nil {
		return nil, fmt.Errorf("failed to call webhook: decode the response: %w", err)
	}
	_, mutating := h.GetMutatingWebhook()
	result, err := webhookrequest.VerifyAdmissionResponse(uid, mutating, response)
	if err != nil {
		return nil, fmt.Errorf("received invalid webhook response: %w", err)
	}
	return result, nil
}

// send sends a body to one of the managers that are ready.
func (c *Chain) send(ctx context.Context, r *apiserver.Request, path string, body []byte) ([]byte, error) {
	ready := slices.DeleteFunc(slices.Clone(c.options.Managers), func(s *Server) bool { return !s.isReady() })
	if len(ready) == 0 {
		return nil, errors.New("no endpoints available for service")
	}
	key := path + " " + identity(r)
	chosen := newChances(c.options.Seed, key, c.number(key)).IntN(len(ready))
	return ready[chosen].serve(ctx, path, body)
}
