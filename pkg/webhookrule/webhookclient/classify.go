package webhookclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
)

// classify converts an error of net/http to a failure. connected reports whether the request had a
// connection: without a connection the service cannot have received it.
func classify(err error, connected bool) *Failure {
	if wrapped, is := errors.AsType[*url.Error](err); is {
		// The text of a url.Error repeats the URL, which may have secrets in its query.
		err = wrapped.Err
	}
	if failure, is := errors.AsType[*Failure](err); is {
		copied := *failure
		copied.Sent = copied.Sent || connected
		return &copied
	}
	class, message := reason(err, connected)
	failure := fail(class, "%s", message)
	failure.Sent, failure.Err = connected, err
	return failure
}

// reason returns the class of an error, and the message for users.
func reason(err error, connected bool) (Class, string) {
	if class, message, is := reasonTLS(err); is {
		return class, message
	}
	text := err.Error()
	dns, isDNS := errors.AsType[*net.DNSError](err)
	timeout, isNet := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, context.Canceled):
		return ClassCanceled, "PodOps stopped before the service answered"
	case isDNS && !dns.IsTimeout:
		return ClassDNS, fmt.Sprintf("the host %q of the url does not resolve", dns.Name)
	case errors.Is(err, context.DeadlineExceeded), isNet && timeout.Timeout():
		if connected {
			return ClassTimeout, "the service did not answer in time"
		}
		return ClassTimeout, "no connection to the service in time"
	// net/http has no type for these two.
	case strings.Contains(text, "response headers exceeded"):
		return ClassTooLarge, "the headers of the answer are too large"
	case strings.Contains(text, "server gave HTTP response to HTTPS client"):
		return ClassTLS, "the service answers without TLS: use an http url, or the port that it serves https on"
	case connected:
		return ClassConnectionBroken, "the connection ended before the answer did: " + text
	default:
		return ClassRefused, "no connection to the service: " + text
	}
}

// reasonTLS returns the class and the message of a handshake error.
func reasonTLS(err error) (Class, string, bool) {
	_, isAlert := errors.AsType[tls.AlertError](err)
	_, isRecord := errors.AsType[tls.RecordHeaderError](err)
	_, isVerification := errors.AsType[*tls.CertificateVerificationError](err)
	_, isAuthority := errors.AsType[x509.UnknownAuthorityError](err)
	_, isName := errors.AsType[x509.HostnameError](err)
	invalid, isInvalid := errors.AsType[x509.CertificateInvalidError](err)
	switch {
	case isAuthority:
		return ClassTLSUntrusted, "the certificate of the service is not signed by an authority that the rule trusts: " +
			"set caBundle to the certificate of the authority that signed it", true
	case isName:
		return ClassTLSNameMismatch, "the certificate of the service is for another name: " + err.Error(), true
	case isInvalid && invalid.Reason == x509.Expired:
		return ClassTLSExpired, "the certificate of the service has expired or is not valid yet: " + err.Error(), true
	case isInvalid, isVerification:
		return ClassTLSUntrusted, "the certificate of the service cannot be trusted: " + err.Error(), true
	case isRecord, isAlert, strings.Contains(err.Error(), "tls: "):
		return ClassTLS, "the TLS handshake failed: " + err.Error(), true
	default:
		return "", "", false
	}
}
