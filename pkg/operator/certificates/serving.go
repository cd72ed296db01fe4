package certificates

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// ErrNotReady is returned to handshakes and probes before a serving certificate
// exists.
var ErrNotReady = errors.New("no serving certificate yet")

// Serving contains the certificate that servers use and the readiness probe checks. It is made before the
// servers, which a manager starts with, and a Reconciler fills it. It is safe for concurrent use.
type Serving struct {
	clock clock.PassiveClock

	mu sync.RWMutex
	// certificate is nil until it is issued.
	certificate *tls.Certificate
	// tokens are the tokens of the CA that signs now, of the CA that signs next, and of the CA
	// that signed before this replica read a new Secret.
	tokens []string
	// unpublished is the error of an object that does not refer to this server, nil if all do.
	unpublished error
}

// NewServing returns a Serving without a certificate.
func NewServing(clock clock.PassiveClock) *Serving {
	return &Serving{clock: clock, unpublished: errors.New("the CAs were not published yet")}
}

// ConfigureTLS makes a server serve the present certificate. Until there is a certificate,
// handshakes fail with ErrNotReady.
func (s *Serving) ConfigureTLS(config *tls.Config) {
	config.MinVersion = tls.VersionTLS13
	config.GetCertificate = s.getCertificate
}

// show starts serving the pair of a State, and accepts its tokens.
func (s *Serving) show(state State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pair := state.Serving
	current, next := state.Current.token(), state.Next.token()
	if len(s.tokens) == 0 {
		s.tokens = []string{current, next, ""}
	}
	if s.tokens[0] != current {
		s.tokens[2] = s.tokens[0]
	}
	s.tokens[0], s.tokens[1] = current, next
	s.certificate = &tls.Certificate{Certificate: [][]byte{pair.Cert.Raw}, PrivateKey: pair.Key, Leaf: pair.Cert}
}

// publishedWith records the result of the last publication.
func (s *Serving) publishedWith(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unpublished = err
}

func (s *Serving) getCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.certificate == nil {
		return nil, ErrNotReady
	}
	return s.certificate, nil
}

// check fails unless the served certificate is valid now and its CA is published everywhere.
func (s *Serving) check(*http.Request) error {
	if err := s.valid(); err != nil {
		return err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.unpublished != nil {
		return fmt.Errorf("publishing the CAs: %w", s.unpublished)
	}
	return nil
}

// valid fails unless the served certificate is valid now.
func (s *Serving) valid() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.certificate == nil {
		return ErrNotReady
	}
	if now := s.clock.Now(); !within(s.certificate.Leaf, now) {
		return fmt.Errorf("the serving certificate is valid from %s to %s only",
			s.certificate.Leaf.NotBefore.UTC().Format(time.RFC3339), s.certificate.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}

// carried records since when the next CA is published everywhere, as seen
// by this replica. A restart loses it, which only makes a rotation wait longer.
type carried struct {
	next  *x509.Certificate
	since time.Time
}

// sinceFor returns since when the CA is published everywhere, zero when it is not.
func (c carried) sinceFor(next Pair) time.Time {
	if next.Cert == nil || c.next == nil || !slices.Equal(c.next.Raw, next.Cert.Raw) {
		return time.Time{}
	}
	return c.since
}

// observed returns the new record after a publication.
func (c carried) observed(next Pair, everywhere bool, now time.Time) carried {
	switch {
	case next.Cert == nil || !everywhere:
		return carried{}
	case !c.sinceFor(next).IsZero():
		return c
	}
	return carried{next: next.Cert, since: now}
}
