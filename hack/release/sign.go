package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/podops-dev/podops/hack/release/internal/dist"
	"github.com/podops-dev/podops/hack/release/internal/provenance"
)

// provenanceName is the file of the signed provenance. It is no part of the index, which it is about.
const provenanceName = "provenance.intoto.json"

// sign writes the signed provenance of a release into its folder.
func sign(s settings, password string, out io.Writer) error {
	if s.key == "" {
		return errors.New("-key is missing: the file of a private key of cosign generate-key-pair, or of openssl in PEM")
	}
	index, err := dist.ReadIndex(s.out)
	if err != nil {
		return err
	}
	statement, err := provenance.Statement(index)
	if err != nil {
		return err
	}
	key, err := os.ReadFile(s.key)
	if err != nil {
		return fmt.Errorf("reading the key: %w", err)
	}
	envelope, err := provenance.Sign(statement, key, password)
	if err != nil {
		return err
	}
	path := filepath.Join(s.out, provenanceName)
	if err := os.WriteFile(path, envelope, 0o644); err != nil {
		return fmt.Errorf("writing the provenance: %w", err)
	}
	_, err = fmt.Fprintln(out, path)
	return err
}
