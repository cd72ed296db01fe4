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

// ErrNotReady is the answer to a handshake, and to a probe, before there is a serving
// certificate.
var ErrNotReady = errors.New("no serving certificate yet")

// serving is what the webhook server shows and the readiness probe judges. It is safe
// for concurrent use.
type serving struct {
	clock clock.PassiveClock

	mu sync.RWMutex
	// certificate is nil until there is one.
	certificate *tls.Certificate
	// unpublished says which webhook configuration does not lead here, nil when all do.
	unpublished error
}

func newServing(clock clock.PassiveClock) *serving {
	return &serving{clock: clock, unpublished: errors.New("the webhook configurations were not read yet")}
}

// show serves the pair from now on.
func (s *serving) show(pair Pair) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.certificate = &tls.Certificate{Certificate: [][]byte{pair.Cert.Raw}, PrivateKey: pair.Key, Leaf: pair.Cert}
}

// publishedWith records the outcome of the last look at the webhook configurations.
func (s *serving) publishedWith(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unpublished = err
}

func (s *serving) getCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.certificate == nil {
		return nil, ErrNotReady
	}
	return s.certificate, nil
}

// check fails unless a certificate is served that is valid now and that every webhook
// configuration trusts.
func (s *serving) check(*http.Request) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.certificate == nil {
		return ErrNotReady
	}
	if now := s.clock.Now(); !within(s.certificate.Leaf, now) {
		return fmt.Errorf("the serving certificate is valid from %s to %s only",
			s.certificate.Leaf.NotBefore.UTC().Format(time.RFC3339), s.certificate.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	if s.unpublished != nil {
		return fmt.Errorf("webhook configurations: %w", s.unpublished)
	}
	return nil
}

// carried remembers since when the next CA is in every webhook configuration, as seen
// by this replica. A restart forgets it, which only makes a rotation wait longer.
type carried struct {
	next  *x509.Certificate
	since time.Time
}

// sinceFor is when the CA began to be carried, zero when it is not.
func (c carried) sinceFor(next Pair) time.Time {
	if next.Cert == nil || c.next == nil || !slices.Equal(c.next.Raw, next.Cert.Raw) {
		return time.Time{}
	}
	return c.since
}

// observed returns what to remember after a look at the configurations.
func (c carried) observed(next Pair, everywhere bool, now time.Time) carried {
	switch {
	case next.Cert == nil || !everywhere:
		return carried{}
	case !c.sinceFor(next).IsZero():
		return c
	}
	return carried{next: next.Cert, since: now}
}
