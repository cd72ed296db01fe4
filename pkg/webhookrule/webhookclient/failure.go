package webhookclient

import (
	"errors"
	"fmt"
	"time"

	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/runtime/text"
)

// Class is the stable reason of a failed call.
type Class string

// The classes of failures.
const (
	// ClassConfiguration means that the url or the caBundle of the rule cannot be used.
	ClassConfiguration Class = "Configuration"

	// ClassSecret means that the credentials of the rule cannot be used.
	ClassSecret Class = "Secret"

	// ClassAddressForbidden means that the host is, or resolves to, an address that rules may not
	// reach.
	ClassAddressForbidden Class = "AddressForbidden"

	// ClassDNS means that the name of the host does not resolve.
	ClassDNS Class = "DNS"

	// ClassUnreachable replaces ClassRefused, ClassTLS, ClassTimeout and ClassConnectionBroken in
	// the result of Shown.
	ClassUnreachable Class = "Unreachable"

	// ClassRefused means that no connection could be made. Nothing was sent.
	ClassRefused Class = "Refused"

	// ClassTLSUntrusted means that the certificate of the service is signed by another authority,
	// or is not a certificate of a server.
	ClassTLSUntrusted Class = "TLSUntrusted"

	// ClassTLSExpired means that the certificate of the service has expired, or is not valid yet.
	ClassTLSExpired Class = "TLSExpired"

	// ClassTLSNameMismatch means that the certificate of the service is for another name.
	ClassTLSNameMismatch Class = "TLSNameMismatch"

	// ClassTLS means that the handshake failed before a certificate was checked.
	ClassTLS Class = "TLS"

	// ClassTimeout means that there was no answer in time. The service may have received the
	// request.
	ClassTimeout Class = "Timeout"

	// ClassConnectionBroken means that the connection ended before the answer was complete. The
	// service may have received the request.
	ClassConnectionBroken Class = "ConnectionBroken"

	// ClassRedirectRefused means that the service answered with a redirect.
	ClassRedirectRefused Class = "RedirectRefused"

	// ClassHTTPStatus means that the status of the answer is not 2xx.
	ClassHTTPStatus Class = "HTTPStatus"

	// ClassTooLarge means that the answer is larger than MaxAnswerBytes, or its headers are too
	// large.
	ClassTooLarge Class = "TooLarge"

	// ClassBadResponse means that the answer does not follow the protocol.
	ClassBadResponse Class = "BadResponse"

	// ClassBreakerOpen means that the circuit breaker is open after repeated failures of the
	// service. Nothing was sent.
	ClassBreakerOpen Class = "BreakerOpen"

	// ClassBusy means that too many calls are queued. Nothing was sent.
	ClassBusy Class = "Busy"

	// ClassCanceled means that PodOps stopped.
	ClassCanceled Class = "Canceled"

	// ClassInternal is a bug of PodOps.
	ClassInternal Class = "Internal"
)

// Failure is the error of a call.
type Failure struct {
	Class Class

	// Message is for users: the failure, and a remedy if a remedy is known. It has at
	// most rule.MaxMessageBytes, and no credentials and no query of a URL.
	Message string

	// RetryAfter is the pause that the service, or the circuit breaker, requires; 0 if neither
	// does. At most MaxRetryAfter.
	RetryAfter time.Duration

	// Sent is set if the service may have received the request. If it is not set, nothing was sent.
	Sent bool

	// Err is the cause, or nil.
	Err error
}

// Error returns the class and the message.
func (f *Failure) Error() string { return string(f.Class) + ": " + f.Message }

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

// Shown returns the class and the message for the users of a rule. It hides whether an address
// rejects connections, drops them, or serves something other than HTTP: rules would make the
// manager a port scanner. The log and the metrics have the details for an administrator.
func (f *Failure) Shown() (Class, string) {
	if !f.hidden() {
		return f.Class, f.Message
	}
	return ClassUnreachable, "the service could not be reached, or did not answer as a web server in time; the log of the manager has the details"
}

// hidden reports whether the class reveals whether a service listens at an address.
func (f *Failure) hidden() bool {
	switch f.Class {
	case ClassRefused, ClassTimeout, ClassConnectionBroken, ClassTLS:
		return true
	default:
		return false
	}
}

// AsFailure returns the failure in err. Any other error becomes one of ClassInternal; nil is nil.
func AsFailure(err error) *Failure {
	if err == nil {
		return nil
	}
	if failure, ok := errors.AsType[*Failure](err); ok {
		return failure
	}
	return &Failure{Class: ClassInternal, Message: cut(err.Error(), rule.MaxMessageBytes), Sent: true, Err: err}
}

// fail returns a failure. The last error among the arguments is its cause.
func fail(class Class, format string, arguments ...any) *Failure {
	failure := &Failure{Class: class, Message: cut(fmt.Sprintf(format, arguments...), rule.MaxMessageBytes)}
	for _, argument := range arguments {
		if err, is := argument.(error); is {
			failure.Err = err
		}
	}
	return failure
}

// cut returns a text that is safe to show on terminals: services and certificates provide parts of
// it.
func cut(shown string, limit int) string { return text.Line(shown, limit) }
