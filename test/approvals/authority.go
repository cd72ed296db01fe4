package approvals

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// validity is the time for which the certificates are valid. Every start issues new certificates.
const validity = 7 * 24 * time.Hour

// authority is a private CA.
type authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
	pem         []byte
}

func newAuthority(now time.Time) (authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return authority{}, fmt.Errorf("making the key of the CA: %w", err)
	}
	template := newTemplate("approvals CA", now)
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return authority{}, fmt.Errorf("making the CA: %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return authority{}, fmt.Errorf("reading the CA: %w", err)
	}
	return authority{certificate: certificate, key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}

// serving returns the certificate of a server with its options.
func (a authority) serving(options Options, now time.Time) (tls.Certificate, error) {
	hosts := append([]string{"localhost", "127.0.0.1", "::1"}, options.Hosts...)
	switch options.Flaw {
	case "":
		return a.issue(hosts, now)
	case Expired:
		return a.issue(hosts, now.Add(-validity-time.Minute))
	case ForAnotherName:
		return a.issue([]string{"another-name.invalid"}, now)
	default:
		return tls.Certificate{}, fmt.Errorf("a certificate cannot be %q", options.Flaw)
	}
}

// issue issues a server certificate for names and addresses.
func (a authority) issue(hosts []string, now time.Time) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("making the key of the server: %w", err)
	}
	template := newTemplate("approvals", now)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	for _, host := range hosts {
		if address := net.ParseIP(host); address != nil {
			template.IPAddresses = append(template.IPAddresses, address)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("making the certificate of the server: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

func newTemplate(name string, now time.Time) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		// Clocks differ a little.
		NotBefore: now.Add(-time.Hour),
		NotAfter:  now.Add(validity),
	}
}
