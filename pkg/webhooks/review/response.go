package review

import (
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// TooManyRequests returns 429 without retryAfterSeconds: clients that see it retry at their own
// pace, where 403 or 500 makes them give up.
func TooManyRequests(message string) admission.Response {
	response := admission.Denied(message)
	response.Result.Code = http.StatusTooManyRequests
	response.Result.Reason = metav1.StatusReasonTooManyRequests
	return response
}

// LabelPath returns the JSON pointer to a label of an object.
func LabelPath(key string) string { return "/metadata/labels/" + escaped(key) }

// AnnotationPath returns the JSON pointer to an annotation of an object.
func AnnotationPath(key string) string { return "/metadata/annotations/" + escaped(key) }

// escaped returns a key as one step of a JSON pointer.
func escaped(key string) string {
	return strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1")
}
