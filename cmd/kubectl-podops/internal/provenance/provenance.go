// Package provenance verifies the signed provenance of a release: an in-toto statement in a DSSE envelope, which names
// the files and images of the release by digest.
package provenance

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

const (
	payloadType   = "application/vnd.in-toto+json"
	predicateType = "https://slsa.dev/provenance/v1"
)

// Statement is what a release states.
type Statement struct {
	PredicateType string    `json:"predicateType"`
	Subjects      []Subject `json:"subject"`
}

// Subject is a file or an image of a release.
type Subject struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"` // in hexadecimal, by algorithm
}

type envelope struct {
	PayloadType string `json:"payloadType"`
	Payload     []byte `json:"payload"`
	Signatures  []struct {
		Signature []byte `json:"sig"`
	} `json:"signatures"`
}

// ErrSignature means that an envelope is not signed with the key.
var ErrSignature = errors.New("the provenance is not signed with this key: it was changed, or it is of another release or key")

// Verify returns the statement of an envelope that is signed with a public key in PEM, of ECDSA or Ed25519.
func Verify(signed, key []byte) (Statement, error) {
	var e envelope
	if err := json.Unmarshal(signed, &e); err != nil {
		return Statement{}, fmt.Errorf("decoding the envelope of the provenance: %w", err)
	}
	if e.PayloadType != payloadType {
		return Statement{}, fmt.Errorf("the envelope contains %q, want %q", e.PayloadType, payloadType)
	}
	verify, err := newVerifier(key)
	if err != nil {
		return Statement{}, err
	}
	message := fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(e.PayloadType), e.PayloadType, len(e.Payload), e.Payload)
	valid := false
	for _, signature := range e.Signatures {
		valid = valid || verify(message, signature.Signature)
	}
	if !valid {
		return Statement{}, ErrSignature
	}
	var statement Statement
	if err := json.Unmarshal(e.Payload, &statement); err != nil {
		return Statement{}, fmt.Errorf("decoding the provenance: %w", err)
	}
	if statement.PredicateType != predicateType {
		return Statement{}, fmt.Errorf("the statement has the predicate %q, want %q", statement.PredicateType, predicateType)
	}
	return statement, nil
}

// newVerifier returns the verification of signatures by a key.
func newVerifier(key []byte) (func(message, signature []byte) bool, error) {
	block, _ := pem.Decode(key)
	if block == nil {
		return nil, errors.New("the key is no public key in PEM")
	}
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("reading the public key: %w", err)
	}
	switch public := public.(type) {
	case *ecdsa.PublicKey:
		return func(message, signature []byte) bool {
			sum := sha256.Sum256(message)
			return ecdsa.VerifyASN1(public, sum[:], signature)
		}, nil
	case ed25519.PublicKey:
		return func(message, signature []byte) bool { return ed25519.Verify(public, message, signature) }, nil
	default:
		return nil, fmt.Errorf("the key is a %T, want a key of ECDSA or Ed25519", public)
	}
}

// HasImage returns an error unless an image with a digest is in the release. The name is not compared: an image keeps its
// digest in a registry of another name.
func (s Statement) HasImage(reference string) error {
	_, digest, ok := strings.Cut(reference, "@sha256:")
	if !ok {
		return fmt.Errorf("image %q has no digest to verify: name it as <name>@sha256:<digest>; index.json of the release has the digest", reference)
	}
	for _, subject := range s.Subjects {
		// Files have no colon in their paths, and images have one before their tags.
		if strings.Contains(subject.Name, ":") && subject.Digest["sha256"] == digest {
			return nil
		}
	}
	return fmt.Errorf("image %q is not in the release that the provenance is about", reference)
}
