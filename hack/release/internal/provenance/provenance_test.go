package provenance

import (
	"bytes"
	"crypto"
	"crypto/elliptic"
	"encoding/base64"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/dsse"

	"github.com/podops-dev/podops/hack/release/internal/dist"
)

const sum = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func index() dist.Index {
	return dist.Index{
		Version: "v0.1.0", Commit: "033ec471d5e1033ec471d5e1033ec471d5e1033e", GoVersion: "go1.26.8",
		Files:  []dist.File{{Path: "install.yaml", SHA256: sum}},
		Images: []dist.Image{{Name: "ghcr.io/podops-dev/podops-manager:v0.1.0", Digest: "sha256:" + sum}},
	}
}

func TestStatement(t *testing.T) {
	encoded, err := Statement(index())
	if err != nil {
		t.Fatal(err)
	}
	var got any
	if err := json.Unmarshal(encoded, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"_type": "https://in-toto.io/Statement/v1", "predicateType": "https://slsa.dev/provenance/v1",
		"subject": []any{
			map[string]any{"name": "install.yaml", "digest": map[string]any{"sha256": sum}},
			map[string]any{"name": "ghcr.io/podops-dev/podops-manager:v0.1.0", "digest": map[string]any{"sha256": sum}},
		},
		"predicate": map[string]any{
			"buildDefinition": map[string]any{
				"buildType": buildType, "externalParameters": map[string]any{"version": "v0.1.0"},
				"resolvedDependencies": []any{
					map[string]any{"uri": "git+" + repository, "digest": map[string]any{"gitCommit": "033ec471d5e1033ec471d5e1033ec471d5e1033e"}},
					map[string]any{"uri": "https://go.dev/dl/", "name": "go1.26.8"},
				},
			},
			"runDetails": map[string]any{"builder": map[string]any{"id": builderID}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("statement (-want +got):\n%s", diff)
	}
	dirty := index()
	dirty.Commit += "-dirty"
	if _, err := Statement(dirty); err == nil {
		t.Error("want an error for a tree that differs from its commit")
	}
	wrong := index()
	wrong.Images[0].Digest = "md5:1"
	if _, err := Statement(wrong); err == nil {
		t.Error("want an error for a digest of another kind")
	}
}

// TestSign verifies envelopes with the library of sigstore: of a plain key, and of an encrypted key.
func TestSign(t *testing.T) {
	for name, password := range map[string]string{"plain": "", "encrypted": "secret"} {
		t.Run(name, func(t *testing.T) {
			var pass cryptoutils.PassFunc
			if password != "" {
				pass = cryptoutils.StaticPasswordFunc([]byte(password))
			}
			key, public, err := cryptoutils.GeneratePEMEncodedECDSAKeyPair(elliptic.P256(), pass)
			if err != nil {
				t.Fatal(err)
			}
			statement, err := Statement(index())
			if err != nil {
				t.Fatal(err)
			}
			envelope, err := Sign(statement, key, password)
			if err != nil {
				t.Fatal(err)
			}
			parsed, err := cryptoutils.UnmarshalPEMToPublicKey(public)
			if err != nil {
				t.Fatal(err)
			}
			verifier, err := signature.LoadVerifier(parsed, crypto.SHA256)
			if err != nil {
				t.Fatal(err)
			}
			if err := dsse.WrapVerifier(verifier).VerifySignature(bytes.NewReader(envelope), nil); err != nil {
				t.Errorf("the signature is invalid: %v", err)
			}
			var content struct{ Payload, PayloadType string }
			if err := json.Unmarshal(envelope, &content); err != nil || content.PayloadType != payloadType {
				t.Errorf("type %q, %v", content.PayloadType, err)
			}
			if payload, err := base64.StdEncoding.DecodeString(content.Payload); err != nil || !bytes.Equal(payload, statement) {
				t.Errorf("the payload is not the statement: %v", err)
			}
			if password != "" {
				if _, err := Sign(statement, key, ""); !errors.Is(err, ErrPassword) {
					t.Errorf("without the password: %v", err)
				}
				if _, err := Sign(statement, key, "wrong"); err == nil {
					t.Error("want an error for a wrong password")
				}
			}
		})
	}
	if _, err := Sign(nil, []byte("no key"), ""); err == nil {
		t.Error("want an error for a file that has no key")
	}
}
