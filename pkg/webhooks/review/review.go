// Package review serves admission reviews. It responds as the webhooks of controller-runtime
// do, and leaves the objects of a review as they were sent: the API server sends the whole object,
// before and after the request, and handlers of pods read a few of its fields.
package review

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/podops-dev/podops/pkg/runtime/prune"
)

// MaxBytes bounds a review: two objects of at most 3 MiB, and the rest.
const MaxBytes = 7 << 20

// Handler serves the reviews of one webhook.
type Handler struct {
	webhook *admission.Webhook
	log     logr.Logger
}

// New returns a Handler. It recovers from panics of the admission.Handler.
func New(handler admission.Handler) *Handler {
	return &Handler{webhook: &admission.Webhook{Handler: handler}, log: ctrllog.Log.WithName("admission")}
}

// ServeHTTP reads a review and writes its response.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, code, err := read(r)
	if err != nil {
		h.refuse(w, code, fmt.Errorf("reading the review: %w", err))
		return
	}
	request, err := decode(body)
	if err != nil {
		h.refuse(w, http.StatusBadRequest, fmt.Errorf("decoding the review: %w", err))
		return
	}
	h.write(w, h.webhook.Handle(r.Context(), request))
}

// buffered is a body that is in memory already. The bytes must not change.
type buffered interface{ Bytes() []byte }

// read returns the body of a request, or else an error with the code of the response.
func read(r *http.Request) (body []byte, code int, err error) {
	if kind := r.Header.Get("Content-Type"); kind != runtime.ContentTypeJSON {
		return nil, http.StatusBadRequest, fmt.Errorf("its content type is %q, want %s", kind, runtime.ContentTypeJSON)
	}
	if r.Body == nil || r.Body == http.NoBody {
		return nil, http.StatusBadRequest, errors.New("it is empty")
	}
	if known, ok := r.Body.(buffered); ok {
		body = known.Bytes()
	} else if body, err = io.ReadAll(io.LimitReader(r.Body, MaxBytes+1)); err != nil {
		return nil, http.StatusBadRequest, err
	}
	if len(body) > MaxBytes {
		return nil, http.StatusRequestEntityTooLarge, fmt.Errorf("it has more than %d bytes", MaxBytes)
	}
	return body, 0, nil
}

// decode returns the request of a review in version v1, the only version that the
// manifests register. Its objects are parts of body.
func decode(body []byte) (admission.Request, error) {
	rest, objects, err := prune.Cut(body, "request", "object", "oldObject")
	if err != nil {
		return admission.Request{}, err
	}
	review := struct {
		APIVersion string                        `json:"apiVersion"`
		Kind       string                        `json:"kind"`
		Request    *admissionv1.AdmissionRequest `json:"request"`
	}{}
	others := jsonv2.UnmarshalFromFunc(func(decoder *jsontext.Decoder, object *runtime.RawExtension) error {
		value, err := decoder.ReadValue()
		if err == nil && value.Kind() != 'n' {
			object.Raw = bytes.Clone(value)
		}
		return err
	})
	if err := jsonv2.Unmarshal(rest, &review, jsonv2.WithUnmarshalers(others), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)); err != nil {
		return admission.Request{}, err
	}
	if want := admissionv1.SchemeGroupVersion.String(); review.APIVersion != want || review.Kind != reviewKind {
		return admission.Request{}, fmt.Errorf("it is a %s of %s, want %s of %s", review.Kind, review.APIVersion, reviewKind, want)
	}
	if review.Request == nil {
		return admission.Request{}, errors.New("it has no request")
	}
	for i, object := range []*runtime.RawExtension{&review.Request.Object, &review.Request.OldObject} {
		if objects[i] != nil {
			object.Raw = objects[i]
		}
	}
	return admission.Request{AdmissionRequest: *review.Request}, nil
}

const reviewKind = "AdmissionReview"

// refuse responds to a review that cannot be read.
func (h *Handler) refuse(w http.ResponseWriter, code int, err error) {
	h.log.Error(err, "Bad review")
	h.write(w, admission.Errored(int32(code), err))
}

func (h *Handler) write(w http.ResponseWriter, response admission.Response) {
	review := admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: reviewKind},
		Response: &response.AdmissionResponse,
	}
	if err := json.NewEncoder(w).Encode(review); err != nil {
		h.log.Error(err, "Writing a response")
	}
}
