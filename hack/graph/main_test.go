package main

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// house is a repository of three layers.
func house() []layer {
	return []layer{
		{name: "roof", packages: []string{"cmd/..."}},
		{name: "walls", packages: []string{"pkg/..."}},
		{name: "ground", packages: []string{"apis", "pkg/runtime/text"}},
	}
}

func TestGraphListsPackagesByLayer(t *testing.T) {
	got, err := draw(imports{
		"cmd/manager": {"pkg/engine/opa", "pkg/runtime/text"}, "pkg/engine/opa": {"apis", "pkg/engine/opa/vet"}, "pkg/engine/opa/vet": nil, "pkg/runtime/text": nil, "apis": nil,
	}, house())
	if err != nil {
		t.Fatal(err)
	}
	want := `roof
  cmd/manager                            pkg/engine/opa pkg/runtime/text

walls
  pkg/engine/opa                                apis pkg/engine/opa/vet
  pkg/engine/opa/vet

ground
  apis
  pkg/runtime/text

5 packages, 4 imports, 0 upwards
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("graph (-want +got):\n%s", diff)
	}
}

func TestGraphRejectsAnImportOfALayerAbove(t *testing.T) {
	_, err := draw(imports{"cmd/manager": nil, "pkg/engine/opa": {"cmd/manager"}}, house())
	want := "pkg/engine/opa (walls) imports cmd/manager (roof), which is above"
	if err == nil || err.Error() != want {
		t.Errorf("error = %v, want %s", err, want)
	}
}

func TestGraphNamesTheFileToEditForAnUnknownPackage(t *testing.T) {
	_, err := draw(imports{"tools/new": nil}, house())
	if err == nil || !strings.Contains(err.Error(), "tools/new is in no layer") || !strings.Contains(err.Error(), "hack/graph/layers.go") {
		t.Errorf("error = %v, want one that names the package and the file to edit", err)
	}
}

func TestImportsLeaveOutOtherModules(t *testing.T) {
	got := imports{}
	got.read(module + "/pkg/opa context " + module + "/apis/apps/v1alpha1 k8s.io/api/core/v1\n" + module + "/apis/apps/v1alpha1\n")
	want := imports{"pkg/engine/opa": {"apis/apps/v1alpha1"}, "apis/apps/v1alpha1": nil}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("imports (-want +got):\n%s", diff)
	}
}

func TestRepositoryImportsPointDownwards(t *testing.T) {
	packages, err := list("../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := draw(packages, layers()); err != nil {
		t.Error(err)
	}
}

func TestArchitectureNamesEveryLayer(t *testing.T) {
	page, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	last := -1
	for _, layer := range layers() {
		at := strings.Index(string(page), "\n"+layer.name+":")
		if at <= last {
			t.Errorf(`docs/architecture.md does not list the layer "%s:", or not in the order of hack/graph/layers.go`, layer.name)
		}
		last = max(last, at)
	}
}
