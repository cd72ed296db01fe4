// Package provenance states how the files and the images of a release were built, and signs the statement: an in-toto
// statement with the predicate of SLSA, in a DSSE envelope.
package provenance

import (
	"bytes"
	"crypto"
	"errors"
	"fmt"
	"strings"

	provenancev1 "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/dsse"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/podops-dev/podops/hack/release/internal/dist"
)

const (
	statementType = "https://in-toto.io/Statement/v1"
	predicateType = "https://slsa.dev/provenance/v1"
	payloadType   = "application/vnd.in-toto+json"

	repository = "https://github.com/podops-dev/podops"
	// buildType is the page that describes the parameters.
	buildType = repository + "/blob/main/docs/releasing.md"
	builderID = repository + "/tree/main/hack/release"

	// dirtySuffix ends the commit of a working tree that differs from it.
	dirtySuffix = "-dirty"
)

// Statement returns the statement about a release: its files and images by digest, and the version, the commit and
// the toolchain that they were built from. It has no time of the build, which is reproducible.
func Statement(index dist.Index) ([]byte, error) {
	if strings.HasSuffix(index.Commit, dirtySuffix) {
		return nil, fmt.Errorf("a release of a tree that differs from its commit (%s) has no provenance: release a clean clone", index.Commit)
	}
	var subjects []*intoto.ResourceDescriptor
	for _, file := range index.Files {
		subjects = append(subjects, &intoto.ResourceDescriptor{Name: file.Path, Digest: map[string]string{"sha256": file.SHA256}})
	}
	for _, image := range index.Images {
		sum, ok := strings.CutPrefix(image.Digest, "sha256:")
		if !ok {
			return nil, fmt.Errorf("the digest of %s is no sha256: %q", image.Name, image.Digest)
		}
		subjects = append(subjects, &intoto.ResourceDescriptor{Name: image.Name, Digest: map[string]string{"sha256": sum}})
	}
	parameters, err := structpb.NewStruct(map[string]any{"version": index.Version})
	if err != nil {
		return nil, fmt.Errorf("encoding the parameters: %w", err)
	}
	provenance := &provenancev1.Provenance{
		BuildDefinition: &provenancev1.BuildDefinition{
			BuildType: buildType, ExternalParameters: parameters,
			ResolvedDependencies: []*intoto.ResourceDescriptor{
				{Uri: "git+" + repository, Digest: map[string]string{"gitCommit": index.Commit}},
				{Uri: "https://go.dev/dl/", Name: index.GoVersion},
			},
		},
		RunDetails: &provenancev1.RunDetails{Builder: &provenancev1.Builder{Id: builderID}},
	}
	if err := provenance.Validate(); err != nil {
		return nil, fmt.Errorf("the provenance is invalid: %w", err)
	}
	encoded, err := protojson.Marshal(provenance)
	if err != nil {
		return nil, fmt.Errorf("encoding the provenance: %w", err)
	}
	predicate := &structpb.Struct{}
	if err := protojson.Unmarshal(encoded, predicate); err != nil {
		return nil, fmt.Errorf("encoding the provenance: %w", err)
	}
	statement := &intoto.Statement{Type: statementType, Subject: subjects, PredicateType: predicateType, Predicate: predicate}
	if err := statement.Validate(); err != nil {
		return nil, fmt.Errorf("the statement is invalid: %w", err)
	}
	encoded, err = protojson.Marshal(statement)
	if err != nil {
		return nil, fmt.Errorf("encoding the statement: %w", err)
	}
	return encoded, nil
}

// ErrPassword means that an encrypted key needs a password.
var ErrPassword = errors.New("the key is encrypted: set PODOPS_KEY_PASSWORD")

// Sign returns a DSSE envelope with a statement, signed with a private key in PEM: of cosign, with its password, or of
// openssl.
func Sign(statement, key []byte, password string) ([]byte, error) {
	private, err := cryptoutils.UnmarshalPEMToPrivateKey(key, func(bool) ([]byte, error) {
		if password == "" {
			return nil, ErrPassword
		}
		return []byte(password), nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the key: %w", err)
	}
	signer, err := signature.LoadSigner(private, crypto.SHA256)
	if err != nil {
		return nil, fmt.Errorf("using the key: %w", err)
	}
	envelope, err := dsse.WrapSigner(signer, payloadType).SignMessage(bytes.NewReader(statement))
	if err != nil {
		return nil, fmt.Errorf("signing the statement: %w", err)
	}
	return append(envelope, '\n'), nil
}
