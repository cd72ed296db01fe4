package policies_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/podops-dev/podops/pkg/engine/opa/vet"
	"github.com/podops-dev/podops/policies"
)

var update = flag.Bool("update", false, "rewrite capabilities.json, docs/builtins.md, and the modules in the manifests of the examples")

// allowed returns the names of the builtins that rules may call.
func allowed() []string {
	var names []string
	for _, group := range vet.AllBuiltins() {
		if group.IsAllowed {
			names = append(names, group.Names...)
		}
	}
	return names
}

// TestCapabilities compares the file with OPA's own description of the builtins above.
func TestCapabilities(t *testing.T) {
	names := allowed()
	capabilities := ast.CapabilitiesForThisVersion()
	capabilities.Builtins = slices.DeleteFunc(capabilities.Builtins, func(builtin *ast.Builtin) bool {
		return !slices.Contains(names, builtin.Name)
	})
	if len(capabilities.Builtins) != len(names) {
		t.Errorf("%d of the %d builtins in the list exist", len(capabilities.Builtins), len(names))
	}
	// No unfinished features of the language ("and", "or", rego.v2), and no template strings:
	// nested ones double the time of the compiler with each level.
	capabilities.FutureKeywords = []string{}
	capabilities.Features = []string{ast.FeatureRegoV1, ast.FeatureKeywordsInRefs}
	slices.Sort(capabilities.Features)
	want, err := json.MarshalIndent(struct {
		*ast.Capabilities

		// AllowNet must be written although it is empty: an absent field allows every host.
		AllowNet []string `json:"allow_net"`
	}{capabilities, []string{}}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got := compare(t, "capabilities.json", append(want, '\n'))
	if !bytes.Equal(got, policies.Capabilities()) {
		t.Error("Capabilities() is not the file on disk")
	}
}

// TestEveryBuiltinIsAllowedOrDenied compares docs/builtins.md with the builtins of this OPA version: each is in one row.
func TestEveryBuiltinIsAllowedOrDenied(t *testing.T) {
	var page bytes.Buffer
	page.WriteString("# Builtins\n\n" +
		"Rules may call the builtins of OPA that need nothing but their arguments and give the same result each time. A call that\n" +
		"takes too long, or too much memory, ends with the [limits of its worker](sandbox.md). `opa check` and `opa test` know the\n" +
		"same builtins by [capabilities.json](../policies/capabilities.json).\n\n" +
		"## Builtins that rules may call\n\n| For | Builtins |\n|---|---|\n")
	rows := map[string]int{}
	isDenied := false
	for _, group := range vet.AllBuiltins() {
		if !group.IsAllowed && !isDenied {
			isDenied = true
			page.WriteString("\n## Builtins that rules may not call\n\n| Builtins | Why | Instead |\n|---|---|---|\n")
		}
		var names []string
		for _, builtin := range ast.CapabilitiesForThisVersion().Builtins {
			if slices.ContainsFunc(group.Names, func(name string) bool {
				return name == builtin.Name || strings.HasSuffix(name, ".") && strings.HasPrefix(builtin.Name, name)
			}) {
				rows[builtin.Name]++
				names = append(names, "`"+builtin.Name+"`")
			}
		}
		if len(names) < len(group.Names) {
			t.Errorf("%d builtins exist of %q", len(names), group.Names)
		}
		if group.IsAllowed {
			fmt.Fprintf(&page, "| %s | %s |\n", group.Why, strings.Join(names, ", "))
		} else {
			fmt.Fprintf(&page, "| %s | %s | %s |\n", strings.Join(names, ", "), group.Why, group.Instead)
		}
	}
	for _, builtin := range ast.CapabilitiesForThisVersion().Builtins {
		if rows[builtin.Name] != 1 {
			t.Errorf("%s is in %d rows, want it in one", builtin.Name, rows[builtin.Name])
		}
	}
	compare(t, "../docs/builtins.md", page.Bytes())
}

// compare returns a file, and fails if its content differs.
func compare(t *testing.T, file string, want []byte) []byte {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil { //nolint:gosec // a source file
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got), rewrite it with -update:\n%s", file, diff)
	}
	return got
}
