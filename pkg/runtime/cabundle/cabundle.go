// Package cabundle parses the caBundle of webhook rules, in the forms of users and older
// clients. It is pure.
package cabundle

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

// MaxBytes bounds a bundle, as the CRD does.
const MaxBytes = 64 << 10

// Parse returns the certificates of a bundle: PEM, or PEM in base64. An empty bundle, or white
// space in either form ("Cg=="), contains no certificate and is no error. Any other content
// besides certificates is an error: it would be trusted less than intended, or more.
func Parse(bundle string) ([]*x509.Certificate, error) {
	if len(bundle) > MaxBytes {
		return nil, fmt.Errorf("has %d bytes, at most %d are allowed", len(bundle), MaxBytes)
	}
	rest := []byte(strings.TrimSpace(bundle))
	if !bytes.Contains(rest, []byte("-----BEGIN")) {
		decoded, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(bundle), ""))
		if err != nil {
			return nil, fmt.Errorf("is neither PEM nor PEM in base64: %w", err)
		}
		rest = bytes.TrimSpace(decoded)
	}
	if len(rest) == 0 {
		return nil, nil
	}
	var found []*x509.Certificate
	for block, rest := pem.Decode(rest); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("has a block %.64q: it must have certificates only, and never a key", block.Type)
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d cannot be read: %w", len(found)+1, err)
		}
		found = append(found, certificate)
	}
	if len(found) == 0 {
		return nil, errors.New("has no certificate in PEM: it must have -----BEGIN CERTIFICATE----- blocks")
	}
	return found, nil
}
