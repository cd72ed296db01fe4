package policies_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/cover"
	"github.com/open-policy-agent/opa/v1/format"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/tester"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/podops-dev/podops/policies"
)

func TestEmbeddedFiles(t *testing.T) {
	onDisk := regoFiles(t, os.DirFS("."))
	if diff := cmp.Diff(onDisk, regoFiles(t, policies.All())); diff != "" {
		t.Errorf("All() differs from the directory (-directory +embedded):\n%s", diff)
	}
	want := slices.DeleteFunc(onDisk, func(name string) bool {
		return strings.HasSuffix(name, "_test.rego") || !strings.HasPrefix(name, "podops/")
	})
	if diff := cmp.Diff(want, regoFiles(t, policies.Library())); diff != "" {
		t.Errorf("Library() differs from the modules in the directory (-directory +embedded):\n%s", diff)
	}
}

// TestNoDataFiles checks that there are no JSON or YAML files, which would be data of "opa test
// policies". Data of a module must be in the module, since the engine loads nothing else.
func TestNoDataFiles(t *testing.T) {
	known := []string{"capabilities.json", "schema/input.json"}
	err := fs.WalkDir(os.DirFS("."), ".", func(name string, _ fs.DirEntry, err error) error {
		isData := slices.Contains([]string{".json", ".yaml", ".yml"}, path.Ext(name))
		if isData && !slices.Contains(known, name) {
			t.Errorf("%s: becomes data; write it in Rego", name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestFormatted(t *testing.T) {
	for name, source := range sources(t) {
		formatted, err := format.Source(name, source)
		if err != nil {
			t.Errorf("formatting %s: %v", name, err)
			continue
		}
		if !bytes.Equal(source, formatted) {
			t.Errorf("%s is not formatted (-want +got):\n%s", name, cmp.Diff(string(formatted), string(source)))
		}
	}
}

func TestStrict(t *testing.T) {
	compiler := ast.NewCompiler().WithStrict(true).WithCapabilities(capabilities(t))
	if compiler.Compile(modules(t)); compiler.Failed() {
		t.Error(compiler.Errors)
	}
}

func TestRego(t *testing.T) {
	modules := modules(t)
	coverage := cover.New()
	results, err := tester.NewRunner().
		SetCompiler(ast.NewCompiler().WithCapabilities(capabilities(t))).
		SetTimeout(time.Minute).
		RaiseBuiltinErrors(true).
		SetCoverageQueryTracer(coverage).
		SetModules(modules).
		RunTests(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	passed := 0
	for result := range results {
		if result.Pass() {
			passed++
			continue
		}
		t.Errorf("%s:%d: %s.%s did not pass: %v", result.Location.File, result.Location.Row,
			result.Package, result.Name, result)
	}
	if passed == 0 {
		t.Error("no Rego test ran")
	}
	for name, file := range coverage.Report(modules).Files {
		for _, uncovered := range file.NotCovered {
			t.Errorf("%s:%d: not covered by any test", name, uncovered.Start.Row)
		}
	}
}

func TestConventions(t *testing.T) {
	described := []any{}
	for name, module := range modules(t) {
		described = append(described, describe(t, name, module))
	}
	violations := query(t, "data.conventions.violations", map[string]any{
		"modules":   described,
		"manifests": manifestNames(t),
	})
	for _, violation := range violations.([]any) {
		t.Error(violation)
	}
}

// TestPercentagesEqualIntOrString checks that Rego computes percentages like every other Kubernetes
// controller.
func TestPercentagesEqualIntOrString(t *testing.T) {
	got := query(t, `[[quota.at_most(bound, total), quota.at_least(bound, total)] |
		some total in numbers.range(0, 300)
		some percent in numbers.range(0, 100)
		bound := {"percent": percent}
	]`, nil).([]any)
	want := []any{}
	for total := range 301 {
		for percent := range 101 {
			down, up := scaled(t, percent, total, false), scaled(t, percent, total, true)
			want = append(want, []any{fmt.Sprint(max(1, down)), fmt.Sprint(up)})
		}
	}
	if len(got) != len(want) {
		t.Fatalf("got %d pairs, want %d", len(got), len(want))
	}
	for i := range want {
		if fmt.Sprint(got[i]) != fmt.Sprint(want[i]) {
			t.Fatalf("total %d, percent %d: at_most and at_least are %v, want %v", i/101, i%101, got[i], want[i])
		}
	}
}

func scaled(t *testing.T, percent, total int, roundUp bool) int {
	t.Helper()
	value := intstr.FromString(fmt.Sprintf("%d%%", percent))
	count, err := intstr.GetScaledValueFromIntOrPercent(&value, total, roundUp)
	if err != nil {
		t.Fatal(err)
	}
	return count
}

// query evaluates one expression over the whole library.
func query(t *testing.T, expression string, input any) any {
	t.Helper()
	options := []func(*rego.Rego){
		rego.Query(expression),
		rego.Imports([]string{"data.podops.lib.quota"}),
		rego.Input(input),
		rego.StrictBuiltinErrors(true),
	}
	for _, module := range modules(t) {
		options = append(options, rego.ParsedModule(module))
	}
	results, err := rego.New(options...).Eval(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != 1 {
		t.Fatalf("%s is undefined", expression)
	}
	return results[0].Expressions[0].Value
}

// describe returns the document about one module that package conventions reads.
func describe(t *testing.T, name string, module *ast.Module) map[string]any {
	t.Helper()
	annotations, errs := ast.BuildAnnotationSet([]*ast.Module{module})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	rules := []any{}
	for _, rule := range module.Rules {
		document := annotations.GetDocumentScope(rule.Ref().GroundPrefix())
		rules = append(rules, map[string]any{
			"name":      rule.Head.Ref()[0].Value.String(),
			"row":       rule.Location.Row,
			"rows":      bytes.Count(rule.Location.Text, []byte("\n")) + 1,
			"described": document != nil && document.Description != "",
		})
	}
	lines := strings.Split(string(sources(t)[name]), "\n")
	longest := slices.MaxFunc(lines, func(a, b string) int { return len(a) - len(b) })
	about := annotations.GetPackageScope(module.Package)
	return map[string]any{
		"file":         name,
		"package":      strings.TrimPrefix(module.Package.Path.String(), "data."),
		"lines":        len(lines) - 1,
		"longest_line": len(longest),
		"titled":       about != nil && about.Title != "",
		"described":    about != nil && about.Description != "",
		"rules":        rules,
	}
}

// capabilities are the capabilities of the engine.
func capabilities(t *testing.T) *ast.Capabilities {
	t.Helper()
	parsed, err := ast.LoadCapabilitiesJSON(bytes.NewReader(policies.Capabilities()))
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func modules(t *testing.T) map[string]*ast.Module {
	t.Helper()
	parsed := map[string]*ast.Module{}
	for name, source := range sources(t) {
		module, err := ast.ParseModuleWithOpts(name, string(source), ast.ParserOptions{ProcessAnnotation: true})
		if err != nil {
			t.Fatal(err)
		}
		parsed[name] = module
	}
	return parsed
}

func sources(t testing.TB) map[string][]byte {
	t.Helper()
	read := map[string][]byte{}
	for _, name := range regoFiles(t, policies.All()) {
		source, err := fs.ReadFile(policies.All(), name)
		if err != nil {
			t.Fatal(err)
		}
		read[name] = source
	}
	return read
}

// regoFiles returns the sorted paths of the Rego files of a tree.
func regoFiles(t testing.TB, tree fs.FS) []string {
	t.Helper()
	found := map[string]bool{}
	err := fs.WalkDir(tree, ".", func(name string, _ fs.DirEntry, err error) error {
		if path.Ext(name) == ".rego" {
			found[name] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(found))
}
