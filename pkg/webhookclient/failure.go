package webhookclient

import (
	"errors"
	"fmt"
	"time"

	"github.com/podops-dev/podops/pkg/text"
)

// Class says in one stable word why a call failed.
type Class string

// The classes of failures.
const (
	// ClassConfiguration: the url or the caBundle of the rule cannot be used.
	ClassConfiguration Class = "Configuration"

	// ClassSecret: the credentials of the rule cannot be used.
	ClassSecret Class = "Secret"

	// ClassAddressForbidden: the host is, or resolves to, an address that rules may not
	// reach.
	ClassAddressForbidden Class = "AddressForbidden"

	// ClassDNS: the name of the host does not resolve.
	ClassDNS Class = "DNS"

	// ClassUnreachable is how Shown returns ClassRefused, ClassTLS, ClassTimeout and
	// ClassConnectionBroken.
	ClassUnreachable Class = "Unreachable"

	// ClassRefused: no connection could be made. Nothing was sent.
	ClassRefused Class = "Refused"

	// ClassTLSUntrusted: the certificate of the service is signed by another authority, or
	// not fit for a server.
	ClassTLSUntrusted Class = "TLSUntrusted"

	// ClassTLSExpired: the certificate of the service has expired, or is not valid yet.
	ClassTLSExpired Class = "TLSExpired"

	// ClassTLSNameMismatch: the certificate of the service is for another name.
	ClassTLSNameMismatch Class = "TLSNameMismatch"

	// ClassTLS: the handshake failed before a certificate was checked.
	ClassTLS Class = "TLS"

	// ClassTimeout: no answer in time. The service may have seen the request.
	ClassTimeout Class = "Timeout"

	// ClassConnectionBroken: the connection was made and ended before the answer did. The
	// service may have seen the request.
	ClassConnectionBroken Class = "ConnectionBroken"

	// ClassRedirectRefused: the service answered with a redirect.
	ClassRedirectRefused Class = "RedirectRefused"

	// ClassHTTPStatus: the status of the answer is not 2xx.
	ClassHTTPStatus Class = "HTTPStatus"

	// ClassTooLarge: the answer is larger than MaxAnswerBytes, or its headers are too large.
	ClassTooLarge Class = "TooLarge"

	// ClassBadResponse: the answer is not what the protocol says.
	ClassBadResponse Class = "BadResponse"

	// ClassBreakerOpen: the circuit breaker is open, since the service has failed again and
	// again. Nothing was sent.
	ClassBreakerOpen Class = "BreakerOpen"

	// ClassBusy: too many calls wait. Nothing was sent.
	ClassBusy Class = "Busy"

	// ClassCanceled: PodOps stopped.
	ClassCanceled Class = "Canceled"

	// ClassInternal: a bug of PodOps.
	ClassInternal Class = "Internal"
)

// MaxMessageBytes bounds the message of a failure, and of an answer.
const MaxMessageBytes = 512

// Failure is the error of a call.
type Failure struct {
	Class Class

	// Message for users: what happened, and where it helps, what to do. At most
	// MaxMessageBytes; it holds no credentials and no query of a URL.
	Message string

	// RetryAfter is the pause that the service, or the circuit breaker, demands; 0 when
	// neither does. At most MaxRetryAfter.
	RetryAfter time.Duration

	// Sent: the service may have seen the request. False means that it surely has not.
	Sent bool

	// Err is what caused it; nil when nothing did.
	Err error
}

// Error is the class and the message.
func (f *Failure) Error() string { return string(f.Class) + ": " + f.Message }

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

// Shown returns the class and the message for the users of a rule. Whether an address refuses
// connections, drops them, or serves something other than HTTP is not shown: rules would make the
// manager a port scanner. An administrator finds it in the log and the metrics.
func (f *Failure) Shown() (Class, string) {
	if !f.hidden() {
		return f.Class, f.Message
	}
	return ClassUnreachable, "the service could not be reached, or did not answer as a web server in time; the log of the manager has the details"
}

// hidden reports whether the class shows what listens at an address.
func (f *Failure) hidden() bool {
	switch f.Class {
	case ClassRefused, ClassTimeout, ClassConnectionBroken, ClassTLS:
		return true
	default:
		return false
	}
}

// AsFailure returns the failure in err. Any other error is one of ClassInternal; nil is nil.
func AsFailure(err error) *Failure {
	if err == nil {
		return nil
	}
	if failure, ok := errors.AsType[*Failure](err); ok {
		return failure
	}
	return &Failure{Class: ClassInternal, Message: cut(err.Error(), MaxMessageBytes), Sent: true, Err: err}
}

// fail makes a failure. Of the arguments, the last error becomes its cause.
func fail(class Class, format string, arguments ...any) *Failure {
	failure := &Failure{Class: class, Message: cut(fmt.Sprintf(format, arguments...), MaxMessageBytes)}
	for _, argument := range arguments {
		if err, is := argument.(error); is {
			failure.Err = err
		}
	}
	return failure
}

// cut returns a text as it may be shown: what services and certificates say ends up on terminals.
func cut(shown string, limit int) string { return text.Line(shown, limit) }
