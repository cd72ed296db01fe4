package inspection

import (
	"errors"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Invalid responds as the API server does for its own validation: 422, with the fields.
func Invalid(kind schema.GroupKind, name string, errs field.ErrorList) admission.Response {
	return rejection(apierrors.NewInvalid(kind, name, errs).Status())
}

// Unknown responds to an error of Check: 429 when the owner has used up its share, 504 after
// a timeout, both of which clients may retry, and 500 for other errors. No such response means that
// the object is invalid.
func Unknown(err error) admission.Response {
	busy := &BusyError{}
	if errors.As(err, &busy) {
		return TooManyRequests(err.Error(), busy.RetryAfter)
	}
	if !errors.Is(err, ErrTimeout) {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	status := apierrors.NewTimeoutError(err.Error(), 1).Status()
	status.Message = err.Error()
	return rejection(status)
}

// TooManyRequests responds with 429. Clients that support Retry-After wait and retry by themselves.
func TooManyRequests(message string, retryAfter time.Duration) admission.Response {
	return rejection(apierrors.NewTooManyRequests(message, int(retryAfter.Seconds())).Status())
}

func rejection(status metav1.Status) admission.Response {
	response := admission.Denied(status.Message)
	response.Result = &status
	return response
}
