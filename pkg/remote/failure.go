package remote

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
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

	// ClassRefused: no connection could be made. Nothing was sent.
	ClassRefused Class = "Refused"

	// ClassTLSUntrusted: the certificate of the service is signed by another authority.
	ClassTLSUntrusted Class = "TLSUntrusted"

	// ClassTLSExpired: the certificate of the service has expired, or is not valid yet.
	ClassTLSExpired Class = "TLSExpired"

	// ClassTLSNameMismatch: the certificate of the service is for another name.
	ClassTLSNameMismatch Class = "TLSNameMismatch"

	// ClassTLS: the handshake failed for another reason.
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

	// ClassBreakerOpen: the host has failed again and again, and is left alone for a
	// while. Nothing was sent.
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

	// RetryAfter is how long the service, or the breaker, wants to be left alone; 0 when
	// neither says. At most MaxRetryAfter.
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

// cut makes a text one line of valid UTF-8 of at most limit bytes. What services and
// certificates say ends up on terminals, so control characters become spaces.
func cut(text string, limit int) string {
	text = strings.Map(func(char rune) rune {
		if unicode.IsControl(char) {
			return ' '
		}
		return char
	}, strings.ToValidUTF8(text, "\uFFFD"))
	if len(text) <= limit {
		return text
	}
	const ellipsis = "..."
	end := limit - len(ellipsis)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + ellipsis
}
