package install

import (
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestTheImageIsVerifiedWithTheProvenance(t *testing.T) {
	const inRelease = "mirror.example/manager@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	testdata := filepath.Join("..", "provenance", "testdata")
	signed, key := filepath.Join(testdata, "provenance.intoto.json"), filepath.Join(testdata, "release.pub")
	for name, tc := range map[string]struct {
		image, provenance, key string
		want                   string // of the error; empty: none
	}{
		"nothing to verify":      {"manager:v1", "", "", ""},
		"of the release":         {inRelease, signed, key, ""},
		"of another release":     {strings.ReplaceAll(inRelease, "aaa", "bbb"), signed, key, "is not in the release"},
		"without a digest":       {"manager:v1", signed, key, "has no digest to verify"},
		"without a key":          {inRelease, signed, "", "--provenance and --key belong together"},
		"without a provenance":   {inRelease, "", key, "--provenance and --key belong together"},
		"with another key":       {inRelease, signed, filepath.Join(testdata, "other.pub"), "is not signed with this key"},
		"a missing key":          {inRelease, signed, "none.pub", "reading --key"},
		"a missing provenance":   {inRelease, "none.json", key, "reading --provenance"},
		"a key for a provenance": {inRelease, key, key, "decoding the envelope"},
	} {
		t.Run(name, func(t *testing.T) {
			deployment := &unstructured.Unstructured{Object: map[string]any{
				"kind": "Deployment",
				"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
					"containers": []any{map[string]any{"name": "manager", "image": tc.image}},
				}}},
			}}
			err := verify([]*unstructured.Unstructured{deployment}, options{provenance: tc.provenance, key: tc.key})
			if (err == nil) != (tc.want == "") || (err != nil && !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("want %q, got %v", tc.want, err)
			}
		})
	}
}
