package certificates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"slices"
	"time"
)

// Issue takes the steps of a decision and returns the resulting State. Keys are
// ECDSA P-256.
func (l Lifetimes) Issue(decision Decision, names []string, now time.Time) (State, error) {
	state := decision.Keep
	for _, step := range decision.Steps {
		var err error
		switch step {
		case MakeNext:
			state.Next, err = l.makeCA(now)
		case Promote:
			state = state.promoted()
		case Sign:
			state.Serving, err = l.sign(state.Current, names, now)
		}
		if err != nil {
			return State{}, fmt.Errorf("taking step %s: %w", step, err)
		}
	}
	return state, nil
}

// promoted returns the State in which the next CA is the current CA. The old CA stays
// trusted until the end of its life, longer than any certificate that it has signed.
func (s State) promoted() State {
	if s.Current.Cert != nil {
		s.Previous = slices.Insert(slices.Clone(s.Previous), 0, s.Current.Cert)
	}
	s.Current, s.Next = s.Next, Pair{}
	return s
}

// makeCA makes a self-signed CA.
func (l Lifetimes) makeCA(now time.Time) (Pair, error) {
	template := &x509.Certificate{
		// The time distinguishes two CAs of one bundle.
		Subject:               pkix.Name{CommonName: "podops-webhook-ca@" + now.UTC().Format(time.RFC3339)},
		NotBefore:             now.Add(-l.Skew),
		NotAfter:              now.Add(l.CA),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	return create(template, Pair{})
}

// sign makes a serving certificate for the names. It ends no later than its CA.
func (l Lifetimes) sign(ca Pair, names []string, now time.Time) (Pair, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "podops-webhook"},
		NotBefore:             now.Add(-l.Skew),
		NotAfter:              now.Add(l.Serving),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	if template.NotAfter.After(ca.Cert.NotAfter) {
		template.NotAfter = ca.Cert.NotAfter
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
			continue
		}
		template.DNSNames = append(template.DNSNames, name)
	}
	return create(template, ca)
}

// create makes a key and a certificate from the template, signed by the CA, or by itself when the
// CA is the zero Pair.
func create(template *x509.Certificate, ca Pair) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("generating key: %w", err)
	}
	if !ca.whole() {
		ca = Pair{Cert: template, Key: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.Cert, key.Public(), ca.Key)
	if err != nil {
		return Pair{}, fmt.Errorf("creating certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return Pair{}, fmt.Errorf("reading certificate back: %w", err)
	}
	return Pair{Cert: cert, Key: key}, nil
}
