package manifests_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/command"
	"github.com/podops-dev/podops/cmd/kubectl-podops/internal/manifests"
)

const file = `# A comment.
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Pod
  metadata: {name: web-0}
- apiVersion: example.com/v1
  kind: Shop
  metadata: {name: unknown}
---
---
apiVersion: apps.kusionstack.io/v1alpha1
kind: PodTransitionRule
metadata:
  name: web
spec:
  rules:
  - name: first
  - name: second
    rego:
      module: |
        package rule
`

func read(t *testing.T) []manifests.Document {
	t.Helper()
	documents, err := manifests.Read(strings.NewReader(file), command.Scheme(), manifests.Stdin)
	if err != nil {
		t.Fatal(err)
	}
	return documents
}

func TestReadReturnsEachObjectWithItsPlace(t *testing.T) {
	var got []string
	for _, document := range read(t) {
		name := "untyped"
		if document.Object != nil {
			name = document.Object.GetName()
		}
		got = append(got, document.Place()+" "+document.Kind.Kind+" "+name)
	}
	want := []string{"-:5 Pod web-0", "-:8 Shop untyped", "-:13 PodTransitionRule web"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestLineOfReturnsTheLineOfTheNearestField(t *testing.T) {
	rule := read(t)[2]
	for path, want := range map[string]int{
		"":                                13,
		"spec.rules[1]":                   20,
		"spec.rules[second].rego.module":  22,
		"spec.rules[1].rego.policyRef.nm": 21,
		"metadata.name":                   16,
	} {
		if got := rule.LineAt(path); got != want {
			t.Errorf("%q: got line %d, want %d", path, got, want)
		}
	}
}

func TestReadNamesThePlaceOfAnError(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"no YAML":     {"kind: [", "-: yaml:"},
		"no kind":     {"\nmetadata: {}\n", "-:2: the document has no kind"},
		"wrong types": {"apiVersion: v1\nkind: Pod\nspec: 3\n", "-:1: "},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := manifests.Read(strings.NewReader(test.text), command.Scheme(), manifests.Stdin)
			if err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("got %v, want an error that begins with %q", err, test.want)
			}
		})
	}
}
