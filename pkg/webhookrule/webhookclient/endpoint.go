package webhookclient

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/runtime/cabundle"
)

// Endpoint is the destination of a call, with the credentials of PodOps.
type Endpoint struct {
	// URL is http or https.
	URL string

	// CABundle has the authorities that the certificate of the service must chain to: PEM, or PEM
	// in base64. Empty, or white space in either form, is the root certificates of the system.
	CABundle string

	// Token is sent as a bearer token, over https only. White space around it is removed.
	Token string

	// ClientCert and ClientKey are PEM; both or neither. They are used over https only.
	ClientCert []byte
	ClientKey  []byte
}

// maxTokenBytes bounds a token: servers reject longer headers.
const maxTokenBytes = 16 << 10

// ParseURL parses the URL of a webhook rule like spec.ParseURL, and rejects addresses in unusual
// notation, too. Errors are *Failures of ClassConfiguration or ClassAddressForbidden. It does not use
// the network.
func ParseURL(text string) (*url.URL, error) {
	parsed, err := spec.ParseURL(text)
	if err != nil {
		return nil, fail(ClassConfiguration, "the url %v", err)
	}
	if err := checkHost(parsed.Hostname()); err != nil {
		return nil, err
	}
	return parsed, nil
}

// CheckURL reports whether a webhook rule may have a URL, without using the network: in addition to
// ParseURL it rejects forbidden addresses, and localhost. The addresses of other names are checked
// when they are dialled.
func (g Guard) CheckURL(text string) error {
	parsed, err := ParseURL(text)
	if err != nil {
		return err
	}
	host := parsed.Hostname()
	if g.allowsHost(host) {
		return nil
	}
	if address, err := netip.ParseAddr(host); err == nil {
		if failure := AsFailure(g.Check(address)); failure != nil && failure.Class != ClassInternal {
			return failure
		}
		return nil // addresses that are not known yet are checked when they are dialled
	}
	return g.checkName(host)
}

// Roots returns the certificates of a caBundle: nil is the root certificates of the system. Errors
// are *Failures of ClassConfiguration.
func Roots(bundle string) (*x509.CertPool, error) {
	certificates, err := cabundle.Parse(bundle)
	if err != nil {
		return nil, fail(ClassConfiguration, "caBundle %v", err)
	}
	if len(certificates) == 0 {
		return nil, nil
	}
	roots := x509.NewCertPool()
	for _, certificate := range certificates {
		roots.AddCert(certificate)
	}
	return roots, nil
}

// identify adds the credentials of PodOps to a request.
func (e Endpoint) identify(request *http.Request) error {
	token, err := e.bearer()
	if err != nil {
		return err
	}
	if request.URL.Scheme != "https" && (token != "" || e.hasCertificate()) {
		return fail(ClassSecret, "credentials are sent over https only: use an https url, or take secretRef out of the rule")
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	return nil
}

func (e Endpoint) hasCertificate() bool { return len(e.ClientCert) > 0 || len(e.ClientKey) > 0 }

// bearer returns the token without white space around it: files end with a line break.
func (e Endpoint) bearer() (string, error) {
	token := strings.TrimSpace(e.Token)
	if len(token) > maxTokenBytes {
		return "", fail(ClassSecret, "the token of the secret is %d bytes long, at most %d are sent", len(token), maxTokenBytes)
	}
	for _, char := range []byte(token) {
		if char <= ' ' || char >= 127 {
			return "", fail(ClassSecret, "the token of the secret has white space in it, or a character beyond ASCII: it must be one word")
		}
	}
	return token, nil
}

// shown returns a message without the token, for users: services repeat parts of requests.
func (e Endpoint) shown(message string) string {
	if token := strings.TrimSpace(e.Token); token != "" {
		message = strings.ReplaceAll(message, token, "[redacted]")
	}
	return cut(message, rule.MaxMessageBytes)
}

// redacted removes the token from a failure.
func (e Endpoint) redacted(err error) error {
	failure, is := errors.AsType[*Failure](err)
	if !is {
		return err
	}
	copied := *failure
	if copied.Message = e.shown(failure.Message); copied.Message != failure.Message {
		copied.Err = nil
	}
	return &copied
}

// trust returns the TLS configuration of an endpoint.
func (e Endpoint) trust() (*tls.Config, error) {
	roots, err := Roots(e.CABundle)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	if e.hasCertificate() {
		pair, err := tls.X509KeyPair(e.ClientCert, e.ClientKey)
		if err != nil {
			return nil, fail(ClassSecret, "tls.crt and tls.key of the secret cannot be used: %v", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
