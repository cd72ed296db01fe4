package certificates

import (
	"crypto/x509"
	"errors"
	"time"
)

// Lifetimes are how long certificates are valid, and how long a rotation waits.
type Lifetimes struct {
	// CA is the life of a CA. It is replaced after two thirds of it.
	CA time.Duration

	// Serving is the life of a serving certificate. It is replaced after two thirds
	// of it, and never outlives its CA.
	Serving time.Duration

	// Grace is the time for which every webhook configuration must have contained a CA
	// before a certificate that it signed is served. API servers watch the
	// configurations, so the last of them reads a CA some time after it was written.
	Grace time.Duration

	// Skew is how far in the past a new certificate begins, for API servers whose
	// clocks are behind.
	Skew time.Duration
}

// DefaultLifetimes returns a year for a CA, 90 days for a serving certificate, a minute
// of grace and an hour of clock skew. A CA is replaced four months before its end, which is
// longer than the life of any certificate that it has signed.
func DefaultLifetimes() Lifetimes {
	return Lifetimes{
		CA:      365 * 24 * time.Hour,
		Serving: 90 * 24 * time.Hour,
		Grace:   time.Minute,
		Skew:    time.Hour,
	}
}

// Validate returns an error for lifetimes that contradict each other.
func (l Lifetimes) Validate() error {
	switch {
	case l.Grace < 0 || l.Skew < 0:
		return errors.New("grace and skew must not be negative")
	case l.Serving < 4*(l.Grace+time.Second):
		// A third of the life is left for a renewal, which must not take longer.
		return errors.New("the serving certificate must live for at least four times the grace time")
	case l.CA < l.Serving:
		return errors.New("the CA must live at least as long as the serving certificate")
	}
	return nil
}

// renewAt returns when c is replaced: after two thirds of its life.
func renewAt(c *x509.Certificate) time.Time {
	return c.NotAfter.Add(-c.NotAfter.Sub(c.NotBefore) / 3)
}
