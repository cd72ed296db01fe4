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

// Invalid answers as the API server does for its own validation: 422, with the fields.
func Invalid(kind schema.GroupKind, name string, errs field.ErrorList) admission.Response {
	return refusal(apierrors.NewInvalid(kind, name, errs).Status())
}

// Unknown answers when Check gave an error: 429 when the owner has used up its share, 504 when there
// was no time, both of which clients may retry, and 500 for the rest. None says that the object is
// wrong.
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
	return refusal(status)
}

// TooManyRequests answers 429. Clients that know Retry-After wait and try again by themselves.
func TooManyRequests(message string, retryAfter time.Duration) admission.Response {
	return refusal(apierrors.NewTooManyRequests(message, int(retryAfter.Seconds())).Status())
}

func refusal(status metav1.Status) admission.Response {
	response := admission.Denied(status.Message)
	response.Result = &status
	return response
}
