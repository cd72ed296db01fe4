package certificates

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Keys of the Secret's data. All values are PEM.
const (
	// currentCertKey and currentKeyKey hold the CA that signs the serving certificate.
	currentCertKey = "ca.crt"
	currentKeyKey  = "ca.key"

	// nextCertKey and nextKeyKey hold the CA that is published already and signs next.
	nextCertKey = "next-ca.crt"
	nextKeyKey  = "next-ca.key"

	// previousCertsKey holds the CAs that signed before and are still valid.
	previousCertsKey = "previous-ca.crt"

	// servingCertKey and servingKeyKey hold the certificate of the webhook server.
	servingCertKey = "tls.crt"
	servingKeyKey  = "tls.key"
)

// Pair is a certificate and its private key. The zero Pair is absent; a Pair without a
// key can be trusted but cannot sign or serve.
type Pair struct {
	Cert *x509.Certificate
	Key  *ecdsa.PrivateKey
}

// whole reports whether both the certificate and the key are present.
func (p Pair) whole() bool { return p.Cert != nil && p.Key != nil }

// State is the content of the Secret. It is a value: its methods return new States, and
// the certificates it points to are never modified.
type State struct {
	Current  Pair
	Next     Pair
	Previous []*x509.Certificate // newest first
	Serving  Pair
}

// Parse reads the data of the Secret. A value that is missing, is no PEM or does not fit its
// certificate or key is absent from the State; that is never an error, because every absent
// value can be made again.
func Parse(data map[string][]byte) State {
	previous, err := cert.ParseCertsPEM(data[previousCertsKey])
	if err != nil {
		previous = nil
	}
	serving := parsePair(data[servingCertKey], data[servingKeyKey])
	if !serving.whole() {
		serving = Pair{}
	}
	next := parsePair(data[nextCertKey], data[nextKeyKey])
	if !next.whole() || !next.Cert.IsCA {
		next = Pair{}
	}
	current := parsePair(data[currentCertKey], data[currentKeyKey])
	if current.Cert != nil && !current.Cert.IsCA {
		current = Pair{}
	}
	return State{
		Current:  current,
		Next:     next,
		Previous: slices.DeleteFunc(previous, func(c *x509.Certificate) bool { return !c.IsCA }),
		Serving:  serving,
	}
}

// parsePair reads one certificate and its key. A certificate without a fitting key is
// returned without a key; a key alone is unusable.
func parsePair(certPEM, keyPEM []byte) Pair {
	certs, err := cert.ParseCertsPEM(certPEM)
	if err != nil {
		return Pair{}
	}
	pair := Pair{Cert: certs[0]}
	parsed, err := keyutil.ParsePrivateKeyPEM(keyPEM)
	if err != nil {
		return pair
	}
	if key, ok := parsed.(*ecdsa.PrivateKey); ok && key.PublicKey.Equal(pair.Cert.PublicKey) {
		pair.Key = key
	}
	return pair
}

// Data returns the data of the Secret. It is the inverse of Parse.
func (s State) Data() (map[string][]byte, error) {
	data := map[string][]byte{}
	for _, item := range []struct {
		pair             Pair
		certKey, keyName string
	}{
		{s.Current, currentCertKey, currentKeyKey},
		{s.Next, nextCertKey, nextKeyKey},
		{s.Serving, servingCertKey, servingKeyKey},
	} {
		if item.pair.Cert != nil {
			data[item.certKey] = encodeCerts(item.pair.Cert)
		}
		if item.pair.Key != nil {
			key, err := keyutil.MarshalPrivateKeyToPEM(item.pair.Key)
			if err != nil {
				return nil, err
			}
			data[item.keyName] = key
		}
	}
	if len(s.Previous) > 0 {
		data[previousCertsKey] = encodeCerts(s.Previous...)
	}
	return data, nil
}

// Bundle returns the PEM of every CA that API servers must trust: the current CA, the
// next CA and the previous CAs, in this order. Empty for a State without CAs.
func (s State) Bundle() []byte {
	return encodeCerts(s.authorities()...)
}

// authorities returns every CA of the State.
func (s State) authorities() []*x509.Certificate {
	var certs []*x509.Certificate
	for _, pair := range []Pair{s.Current, s.Next} {
		if pair.Cert != nil {
			certs = append(certs, pair.Cert)
		}
	}
	return append(certs, s.Previous...)
}

// valid returns the State without certificates that are not valid at now.
func (s State) valid(now time.Time) State {
	s.Previous = slices.DeleteFunc(slices.Clone(s.Previous), func(c *x509.Certificate) bool { return !within(c, now) })
	for _, pair := range []*Pair{&s.Current, &s.Next, &s.Serving} {
		if pair.Cert != nil && !within(pair.Cert, now) {
			*pair = Pair{}
		}
	}
	return s
}

// within reports whether now is in the lifetime of c.
func within(c *x509.Certificate, now time.Time) bool {
	return !now.Before(c.NotBefore) && !now.After(c.NotAfter)
}

func encodeCerts(certs ...*x509.Certificate) []byte {
	var out []byte
	for _, c := range certs {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: c.Raw})...)
	}
	return out
}
