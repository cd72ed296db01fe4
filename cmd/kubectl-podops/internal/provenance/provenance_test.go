package provenance

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// testdata has sigstore test keys, and a provenance that `release sign` in hack/release has written, for
// an index.json with the file install.yaml and the image ghcr.io/podops-dev/podops-manager:v0.1.0.
const (
	imageSum = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	fileSum  = "e25209b6e6c1f782b78132b008b475de169b9153540f2d59a52d4c0e44d15571"
)

func read(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func TestVerify(t *testing.T) {
	signed, key := read(t, "provenance.intoto.json"), read(t, "release.pub")
	statement, err := Verify(signed, key)
	if err != nil {
		t.Fatal(err)
	}
	if len(statement.Subjects) != 2 || statement.Subjects[0].Name != "install.yaml" {
		t.Errorf("subjects: %v", statement.Subjects)
	}
	for reference, want := range map[string]string{
		"ghcr.io/podops-dev/podops-manager:v0.1.0@sha256:" + imageSum: "",
		"mirror.example/manager@sha256:" + imageSum:                   "",
		"ghcr.io/podops-dev/podops-manager:v0.1.0":                    "has no digest to verify",
		"ghcr.io/podops-dev/podops-manager@sha256:" + fileSum:         "is not in the release", // the digest of a file
		"ghcr.io/podops-dev/podops-manager@sha256:" + imageSum[1:]:    "is not in the release",
	} {
		err := statement.HasImage(reference)
		if (err == nil) != (want == "") || (err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: want %q, got %v", reference, want, err)
		}
	}
}

func TestVerifyRejects(t *testing.T) {
	signed, key := read(t, "provenance.intoto.json"), read(t, "release.pub")
	change := func(edit func(map[string]any)) []byte {
		var content map[string]any
		if err := json.Unmarshal(signed, &content); err != nil {
			t.Fatal(err)
		}
		edit(content)
		changed, err := json.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		return changed
	}
	for name, tc := range map[string]struct {
		signed, key []byte
		want        string
	}{
		"another key":    {signed, read(t, "other.pub"), ErrSignature.Error()},
		"a changed text": {change(func(c map[string]any) { c["payload"] = "e30=" }), key, ErrSignature.Error()},
		"no signature":   {change(func(c map[string]any) { c["signatures"] = nil }), key, ErrSignature.Error()},
		"another type":   {change(func(c map[string]any) { c["payloadType"] = "text/plain" }), key, `contains "text/plain"`},
		"no envelope":    {[]byte("SHA256SUMS"), key, "decoding the envelope"},
		"no key":         {signed, []byte("key"), "no public key in PEM"},
		"a broken key":   {signed, bytes.Replace(key, []byte("M"), []byte("A"), 1), "reading the public key"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Verify(tc.signed, tc.key); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("want an error with %q, got %v", tc.want, err)
			}
		})
	}
	if _, err := Verify(signed, read(t, "other.pub")); !errors.Is(err, ErrSignature) {
		t.Errorf("want ErrSignature, got %v", err)
	}
}
