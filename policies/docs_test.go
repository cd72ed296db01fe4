package policies_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	opaast "github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/format"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/tester"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule/parameters"
	"github.com/podops-dev/podops/policies"
)

// document is the guide for authors of policies. Everything in it that can run is run here.
const document = "../docs/policies.md"

// rejectedPrefix begins a snippet that must not compile; the code of OPA's error follows.
const rejectedPrefix = "# refused: "

func TestModulesOfTheDocument(t *testing.T) {
	for _, source := range snippets(t, "rego") {
		code, refused := strings.CutPrefix(strings.SplitN(source, "\n", 2)[0], rejectedPrefix)
		t.Run(packageOf(t, source), func(t *testing.T) {
			if formatted, err := format.Source("snippet.rego", []byte(source)); err != nil || string(formatted) != source {
				t.Errorf("is not formatted (%v):\n%s", err, cmp.Diff(string(formatted), source))
			}
			err := compiled(t, source, !strings.HasSuffix(packageOf(t, source), "_test"))
			if !refused && err != nil {
				t.Error(err)
			}
			if refused && !hasCode(err, code) {
				t.Errorf("got error %v, want one with code %s", err, code)
			}
		})
	}
}

func TestTestsOfTheDocument(t *testing.T) {
	modules := map[string]*opaast.Module{}
	for i, source := range snippets(t, "rego") {
		if !strings.HasPrefix(source, rejectedPrefix) {
			modules[fmt.Sprint(i)] = opaast.MustParseModule(source)
		}
	}
	results, err := tester.NewRunner().
		SetCompiler(opaast.NewCompiler().WithCapabilities(limits(t))).
		SetTimeout(time.Minute).
		RaiseBuiltinErrors(true).
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
		t.Errorf("%s.%s did not pass: %v", result.Package, result.Name, result)
	}
	if passed == 0 {
		t.Error("no test of the document ran")
	}
}

// TestModulesOfTheDocumentReturnForEmptyFacts checks that modules return a value for facts of the
// right types that are all empty.
func TestModulesOfTheDocumentReturnForEmptyFacts(t *testing.T) {
	input := zeroOf(t, inputSchema(t), inputSchema(t))
	for _, source := range snippets(t, "rego") {
		name := packageOf(t, source)
		if strings.HasPrefix(source, rejectedPrefix) || strings.HasSuffix(name, "_test") {
			continue
		}
		results, err := rego.New(
			rego.Query("data."+name),
			rego.Module(name+".rego", source),
			rego.Input(input),
			rego.StrictBuiltinErrors(true),
		).Eval(t.Context())
		if err != nil || len(results) != 1 {
			t.Errorf("%s: %d results, error %v", name, len(results), err)
		}
	}
}

// TestManifestsOfTheDocument checks that the API server accepts the manifests of the document.
func TestManifestsOfTheDocument(t *testing.T) {
	for _, block := range snippets(t, "yaml") {
		schema, _ := parameters.Parse(nil, nil)
		for text := range strings.SplitSeq(block, "\n---\n") {
			kind := struct {
				Kind string `json:"kind"`
			}{}
			if err := yaml.Unmarshal([]byte(text), &kind); err != nil {
				t.Fatal(err)
			}
			switch kind.Kind {
			case "PodTransitionPolicy":
				var shared appsv1alpha1.PodTransitionPolicy
				strictly(t, text, &shared)
				var errs field.ErrorList
				if schema, errs = parameters.Parse(shared.Spec.Parameters, field.NewPath("spec")); len(errs) > 0 {
					t.Fatal(errs)
				}
				if err := compiled(t, shared.Spec.Module, true); err != nil {
					t.Error(err)
				}
			case "PodTransitionRule":
				var rules appsv1alpha1.PodTransitionRule
				strictly(t, text, &rules)
				for _, rule := range rules.Spec.Rules {
					checkRule(t, schema, rule)
				}
			default:
				t.Errorf("unknown kind %q in:\n%s", kind.Kind, text)
			}
		}
	}
}

func checkRule(t *testing.T, schema *parameters.Schema, rule appsv1alpha1.TransitionRule) {
	t.Helper()
	if rule.Rego.Module != "" {
		if err := compiled(t, rule.Rego.Module, true); err != nil {
			t.Error(err)
		}
		return
	}
	if _, errs := schema.Complete(rule.Rego.Parameters.Raw, field.NewPath("parameters")); len(errs) > 0 {
		t.Error(errs)
	}
}

func TestDocumentNamesEveryCode(t *testing.T) {
	text := read(t, document)
	parsed, err := parser.ParseFile(token.NewFileSet(), "../pkg/core/rule/verdict.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	ast.Inspect(parsed, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok || fmt.Sprint(spec.Type) != "Code" || len(spec.Values) != 1 {
			return true
		}
		code, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		found++
		if !strings.Contains(text, "\n| `"+code+"` |") {
			t.Errorf("%s has no row for the code %s", document, code)
		}
		return true
	})
	if found == 0 {
		t.Error("there are no codes")
	}
}

// library lists the examples, with a paragraph about each.
const library = "../docs/policy-library.md"

func TestLibraryNamesEveryExample(t *testing.T) {
	text := read(t, library)
	for _, example := range examples(t) {
		if _, err := os.Stat(example.suitePath()); err != nil {
			t.Errorf("%s has no suite: %v", example.name, err)
		}
		paragraph := regexp.MustCompile(fmt.Sprintf(`(?m)^\*\*%s\*\*, \d+ minutes \(\[module\]\(\.\./policies/examples/%s\), \[manifest\]\(%s\),\n`+
			`\[suite\]\(%s\); `+"`(allow|deny)`"+`\)\.\n\S`,
			example.dashed(), regexp.QuoteMeta(example.name+"/"+example.name+".rego"),
			regexp.QuoteMeta(example.manifestPath()), regexp.QuoteMeta(example.suitePath())))
		if found := len(paragraph.FindAllString(text, -1)); found != 1 {
			t.Errorf("%s has %d paragraphs that begin with %s", library, found, paragraph)
		}
	}
}

// TestDocumentHasTheInput compares the table of the input with the schema; -update writes it.
func TestDocumentHasTheInput(t *testing.T) {
	const begin, end = "-update\" -->\n", "<!-- end of input -->"
	text := read(t, document)
	before, rest, found := strings.Cut(text, begin)
	table, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no place for the table of the input", document)
	}
	schema := inputSchema(t)
	want := "\n| Field of `input` | Type | Meaning |\n|---|---|---|\n" + rows(schema, schema, "") + "\n"
	if *update {
		if err := os.WriteFile(document, []byte(before+begin+want+end+after), 0o644); err != nil { //nolint:gosec // a document
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, table); diff != "" {
		t.Errorf("the input (-schema +document), rewrite it with -update:\n%s", diff)
	}
}

// rows returns the rows of the fields of a schema. The fields of pods are listed once.
func rows(schema, node map[string]any, at string) string {
	text := strings.Builder{}
	properties, _ := node["properties"].(map[string]any)
	order, _ := node["required"].([]any)
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range properties {
			if !slices.Contains(order, any(name)) && !yield(name) {
				return
			}
		}
	}) {
		order = append(order, name)
	}
	for _, name := range order {
		own := properties[name.(string)].(map[string]any)
		child := resolved(schema, own)
		description, _ := child["description"].(string)
		if more, ok := own["description"].(string); ok {
			description = more
		}
		path := at + name.(string)
		fmt.Fprintf(&text, "| `%s` | %s | %s |\n", path, typeIn(schema, child), strings.ReplaceAll(description, "<", "&lt;"))
		if items, ok := child["items"].(map[string]any); ok && path != "pods" {
			text.WriteString(rows(schema, resolved(schema, items), path+"[]."))
		}
		if path != "rule.filter" {
			text.WriteString(rows(schema, child, path+"."))
		}
	}
	return text.String()
}

func typeIn(schema, node map[string]any) string {
	if values, ok := node["enum"].([]any); ok {
		quoted := []string{}
		for _, value := range values {
			quoted = append(quoted, fmt.Sprintf("`%q`", value))
		}
		return strings.Join(quoted, ", ")
	}
	switch inner, _ := node["additionalProperties"].(map[string]any); {
	case inner != nil:
		return "map of " + fmt.Sprint(inner["type"]) + "s"
	case node["type"] == "array":
		items := resolved(schema, node["items"].(map[string]any))
		return "list of " + fmt.Sprint(items["type"]) + "s"
	default:
		return fmt.Sprint(node["type"])
	}
}

// resolved follows a reference to a definition of the schema.
func resolved(schema, node map[string]any) map[string]any {
	ref, ok := node["$ref"].(string)
	if !ok {
		return node
	}
	return schema["definitions"].(map[string]any)[strings.TrimPrefix(ref, "#/definitions/")].(map[string]any)
}

// zeroOf returns a document that fits a schema, with empty values.
func zeroOf(t *testing.T, schema, node map[string]any) any {
	t.Helper()
	node = resolved(schema, node)
	if values, ok := node["enum"].([]any); ok {
		return values[0]
	}
	switch node["type"] {
	case "string":
		return ""
	case "number":
		return 0
	case "boolean":
		return false
	case "array":
		return []any{}
	case "object":
		filled := map[string]any{}
		required, _ := node["required"].([]any)
		for _, name := range required {
			filled[name.(string)] = zeroOf(t, schema, node["properties"].(map[string]any)[name.(string)].(map[string]any))
		}
		return filled
	}
	t.Fatalf("the schema has a type %v", node["type"])
	return nil
}

func inputSchema(t *testing.T) map[string]any {
	t.Helper()
	schema := map[string]any{}
	if err := json.Unmarshal(policies.InputSchema(), &schema); err != nil {
		t.Fatal(err)
	}
	return schema
}

// compiled compiles like "opa check --strict", with the capabilities and, for modules of rules,
// with the schema. The packages that tests import are missing, and not checked.
func compiled(t *testing.T, source string, isRule bool) error {
	t.Helper()
	module, err := opaast.ParseModuleWithOpts("snippet.rego", source, opaast.ParserOptions{Capabilities: limits(t)})
	if err != nil {
		return err
	}
	compiler := opaast.NewCompiler().WithStrict(true).WithCapabilities(limits(t))
	if isRule {
		schemas := opaast.NewSchemaSet()
		schemas.Put(opaast.SchemaRootRef, any(inputSchema(t)))
		compiler = compiler.WithSchemas(schemas)
	}
	if compiler.Compile(map[string]*opaast.Module{"snippet.rego": module}); compiler.Failed() {
		return compiler.Errors
	}
	return nil
}

func hasCode(err error, code string) bool {
	var errs opaast.Errors
	return errors.As(err, &errs) && len(errs) > 0 && errs[0].Code == code
}

func packageOf(t *testing.T, source string) string {
	t.Helper()
	module, err := opaast.ParseModule("snippet.rego", source)
	if err != nil {
		t.Fatalf("%v in:\n%s", err, source)
	}
	return strings.TrimPrefix(module.Package.Path.String(), "data.")
}

// snippets returns the blocks of the document in one language.
func snippets(t *testing.T, language string) []string {
	t.Helper()
	found := []string{}
	for _, block := range strings.Split(read(t, document), "\n```"+language+"\n")[1:] {
		source, _, closed := strings.Cut(block, "\n```\n")
		if !closed {
			t.Fatalf("a block of %s is not closed", document)
		}
		found = append(found, source+"\n")
	}
	if len(found) == 0 {
		t.Fatalf("%s has no blocks in %s", document, language)
	}
	return found
}

func strictly(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
