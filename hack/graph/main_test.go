package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// house is a repository of four layers.
func house() []layer {
	return []layer{
		{name: "roof", packages: []string{"cmd/..."}},
		{name: "walls", packages: []string{"pkg/..."}, isRoom: true},
		{name: "cellar", packages: []string{"pkg/text"}, isRoom: true},
		{name: "ground", packages: []string{"apis"}},
	}
}

func TestGraphListsTheRoomsThatARoomImports(t *testing.T) {
	packages := imports{
		"cmd/manager": {"pkg/opa", "pkg/text"}, "pkg/opa": {"apis", "pkg/opa/vet", "pkg/text"}, "pkg/opa/vet": nil, "pkg/text": nil, "apis": nil,
	}
	const rooms = `roof                     walls, cellar
walls                    cellar, ground
cellar
ground

5 packages in 2 rooms, 1 imports between rooms, 0 upwards
`
	const each = `roof                     walls, cellar
  cmd/manager                            pkg/opa pkg/text
walls                    cellar, ground
  pkg/opa                                apis pkg/opa/vet pkg/text
  pkg/opa/vet
cellar
  pkg/text
ground
  apis

5 packages in 2 rooms, 1 imports between rooms, 0 upwards
`
	for _, want := range []string{rooms, each} {
		got, err := draw(packages, house(), want == each)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("graph (-want +got):\n%s", diff)
		}
	}
}

func TestGraphRejectsTooManyImportsBetweenRooms(t *testing.T) {
	packages, rooms := imports{}, []layer{}
	for i := range 11 { // each imports all below: 55
		name := fmt.Sprintf("pkg/%d", i)
		rooms, packages[name] = append(rooms, layer{name: name, packages: []string{name}, isRoom: true}), nil
		for below := i + 1; below < 11; below++ {
			packages[name] = append(packages[name], fmt.Sprintf("pkg/%d", below))
		}
	}
	if _, err := draw(packages, rooms, false); err == nil || !strings.Contains(err.Error(), "at most 50") {
		t.Errorf("error = %v, want one that has the bound", err)
	}
}

func TestGraphRejectsAnImportOfALayerAbove(t *testing.T) {
	_, err := draw(imports{"cmd/manager": nil, "pkg/opa": {"cmd/manager"}}, house(), false)
	want := "pkg/opa (walls) imports cmd/manager (roof), which is above"
	if err == nil || err.Error() != want {
		t.Errorf("error = %v, want %s", err, want)
	}
}

func TestGraphNamesTheFileToEditForAnUnknownPackage(t *testing.T) {
	_, err := draw(imports{"tools/new": nil}, house(), false)
	if err == nil || !strings.Contains(err.Error(), "tools/new is in no layer") || !strings.Contains(err.Error(), "hack/graph/layers.go") {
		t.Errorf("error = %v, want one that names the package and the file to edit", err)
	}
}

func TestImportsLeaveOutOtherModules(t *testing.T) {
	got := imports{}
	got.read(module + "/pkg/opa context " + module + "/apis/apps/v1alpha1 k8s.io/api/core/v1\n" + module + "/apis/apps/v1alpha1\n")
	want := imports{"pkg/opa": {"apis/apps/v1alpha1"}, "apis/apps/v1alpha1": nil}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("imports (-want +got):\n%s", diff)
	}
}

func TestRepositoryImportsPointDownwards(t *testing.T) {
	packages, err := list("../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := draw(packages, layers(), false); err != nil {
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

// TestArchitectureNamesFunctionsThatExist checks each name after a package, as in `pkg/core/permit`: `Next`, `Plan`.
func TestArchitectureNamesFunctionsThatExist(t *testing.T) {
	page, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile("`(pkg/[a-z/]+)`: (`[A-Za-z.]+`(?:, `[A-Za-z.]+`)*)").FindAllStringSubmatch(string(page), -1)
	if len(names) < 20 {
		t.Fatalf("the page names functions of %d packages, want at least 20", len(names))
	}
	for _, match := range names {
		code := source(t, match[1])
		for _, name := range strings.Split(match[2], ", ") {
			receiver, function, isMethod := strings.Cut(strings.Trim(name, "`"), ".")
			pattern := `(?m)^(func|type) ` + receiver + `\b`
			if isMethod {
				pattern = `(?m)^func \((\w+ )?\*?` + receiver + `\) ` + function + `\(`
			}
			if !regexp.MustCompile(pattern).MatchString(code) {
				t.Errorf("docs/architecture.md names %s, which %s does not have", name, match[1])
			}
		}
	}
}

// source returns the Go files of a package.
func source(t *testing.T, folder string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", folder, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has %d files: %v", folder, len(files), err)
	}
	var text strings.Builder
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(content)
	}
	return text.String()
}
