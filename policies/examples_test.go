package policies_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule/parameters"
	"github.com/podops-dev/podops/pkg/engine/opa"
)

// manifests is the directory of the PodTransitionPolicies of the examples. They are not beside the
// sources since every YAML file below policies would be data of "opa test policies".
const manifests = "../config/samples/policies"

// suites is the directory with the suites of examples.
const suites = "../examples/policies"

// TestManifestsHoldTheModules compares each manifest with the module of its example; -update copies
// it.
func TestManifestsHoldTheModules(t *testing.T) {
	for _, example := range examples(t) {
		t.Run(example.name, func(t *testing.T) {
			if *update {
				writeModule(t, example)
			}
			shared, _ := example.manifest(t)
			if diff := cmp.Diff(example.source, shared.Spec.Module); diff != "" {
				t.Errorf("%s (-example +manifest), rewrite it with -update:\n%s", example.manifestPath(), diff)
			}
		})
	}
}

// TestManifestsAreAccepted checks that each policy is accepted with the types of its parameters,
// and that the parameters of the rule that refers to it fit.
func TestManifestsAreAccepted(t *testing.T) {
	subject, err := opa.New(opa.Options{Timeout: time.Minute, CustomTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for _, example := range examples(t) {
		t.Run(example.name, func(t *testing.T) {
			shared, rules := example.manifest(t)
			if shared.Spec.Description == "" {
				t.Error("has no description")
			}
			schema, errs := parameters.Parse(shared.Spec.Parameters, field.NewPath("spec", "parameters"))
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			types, err := schema.JSONSchema()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := subject.Inspect(t.Context(), opa.Source{Module: shared.Spec.Module, ParametersSchema: types}); err != nil {
				t.Errorf("the module is refused: %v", err)
			}
			for _, rule := range rules.Spec.Rules {
				if rule.Rego == nil || rule.Rego.PolicyRef == nil || rule.Rego.PolicyRef.Name != shared.Name {
					t.Errorf("rule %s does not refer to policy %s", rule.Name, shared.Name)
					continue
				}
				if _, errs := schema.Complete(given(rule), field.NewPath("parameters")); len(errs) > 0 {
					t.Errorf("rule %s: %v", rule.Name, errs)
				}
			}
		})
	}
}

// given returns the parameters of a rule; nil without any.
func given(rule appsv1alpha1.TransitionRule) []byte {
	return ptr.Deref(rule.Rego.Parameters, apiextensionsv1.JSON{}).Raw
}

// TestNoExamplePassesWithoutAFact removes each fact from the inputs with which the tests of the
// examples expect a pod to wait: the pod still waits. Labels are not removed: a missing label is a
// fact, too.
func TestNoExamplePassesWithoutAFact(t *testing.T) {
	for _, example := range examples(t) {
		t.Run(example.name, func(t *testing.T) {
			withheld, _ := query(t, "data."+example.pkg+"_test._withheld", nil).(map[string]any)
			if len(withheld) == 0 {
				t.Fatal("its tests have no _withheld: an object of inputs under which a pod waits")
			}
			subject := example.prepare(t)
			for name, input := range withheld {
				if passes(t, subject, input) {
					t.Errorf("%s: passes with all facts there", name)
				}
				for _, fact := range facts(input, nil) {
					if passes(t, subject, without(t, input, fact)) {
						t.Errorf("%s: passes without %v", name, fact)
					}
				}
			}
		})
	}
}

// example is one directory below examples.
type example struct {
	name   string
	pkg    string
	source string
}

func examples(t testing.TB) []example {
	t.Helper()
	found := []example{}
	for file, source := range sources(t) {
		directory, base := path.Split(file)
		name := path.Base(directory)
		if strings.HasPrefix(file, "examples/") && base == name+".rego" {
			found = append(found, example{name: name, pkg: "rule." + name, source: string(source)})
		}
	}
	if len(found) == 0 {
		t.Fatal("there are no examples")
	}
	slices.SortFunc(found, func(a, b example) int { return strings.Compare(a.name, b.name) })
	return found
}

// dashed returns the name of the example as Kubernetes writes names.
func (e example) dashed() string { return strings.ReplaceAll(e.name, "_", "-") }

func (e example) manifestPath() string { return filepath.Join(manifests, e.dashed()+".yaml") }

// suitePath returns the file of the suite, which "kubectl podops test examples/policies" runs.
func (e example) suitePath() string { return filepath.Join(suites, e.dashed()+".yaml") }

// manifest returns the policy, and the PodTransitionRule that uses it. Unknown fields are errors.
func (e example) manifest(t testing.TB) (appsv1alpha1.PodTransitionPolicy, appsv1alpha1.PodTransitionRule) {
	t.Helper()
	content, err := os.ReadFile(e.manifestPath())
	if err != nil {
		t.Fatal(err)
	}
	documents := bytes.Split(content, []byte("\n---\n"))
	if len(documents) != 2 {
		t.Fatalf("%s has %d documents, want a PodTransitionPolicy and a PodTransitionRule", e.manifestPath(), len(documents))
	}
	var shared appsv1alpha1.PodTransitionPolicy
	var rules appsv1alpha1.PodTransitionRule
	for i, into := range []any{&shared, &rules} {
		if err := yaml.UnmarshalStrict(append(documents[i], '\n'), into); err != nil {
			t.Fatalf("%s, document %d: %v", e.manifestPath(), i+1, err)
		}
	}
	if shared.Kind != "PodTransitionPolicy" || rules.Kind != "PodTransitionRule" || len(rules.Spec.Rules) == 0 {
		t.Fatalf("%s is a %s and a %s with %d rules", e.manifestPath(), shared.Kind, rules.Kind, len(rules.Spec.Rules))
	}
	return shared, rules
}

// prepare evaluates the example to an object with its rules, allow or deny among them.
func (e example) prepare(t *testing.T) rego.PreparedEvalQuery {
	t.Helper()
	prepared, err := rego.New(
		rego.Query("data."+e.pkg),
		rego.Module(e.name+".rego", e.source),
		rego.Capabilities(limits(t)),
	).PrepareForEval(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return prepared
}

// passes reports whether a pod passes: allow is true, or deny is present and empty. Errors of
// builtins are undefined, as in "opa test": the engine is stricter.
func passes(t *testing.T, prepared rego.PreparedEvalQuery, input any) bool {
	t.Helper()
	results, err := prepared.Eval(t.Context(), rego.EvalInput(input))
	if err != nil || len(results) != 1 {
		return false
	}
	answer, _ := results[0].Expressions[0].Value.(map[string]any)
	if denied, ok := answer["deny"].([]any); ok {
		return len(denied) == 0
	}
	return answer["allow"] == true
}

// facts returns the paths of all keys of a document, except for keys within labels.
func facts(document any, at []any) [][]any {
	found := [][]any{}
	switch value := document.(type) {
	case map[string]any:
		for key, inner := range value {
			here := append(slices.Clone(at), key)
			found = append(found, here)
			if key != "labels" {
				found = append(found, facts(inner, here)...)
			}
		}
	case []any:
		for i, inner := range value {
			found = append(found, facts(inner, append(slices.Clone(at), i))...)
		}
	}
	return found
}

// without returns a copy of a document without the key at the path.
func without(t *testing.T, document any, fact []any) any {
	t.Helper()
	text, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	var whole any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&whole); err != nil {
		t.Fatal(err)
	}
	at := whole
	for _, step := range fact[:len(fact)-1] {
		switch key := step.(type) {
		case string:
			at = at.(map[string]any)[key]
		case int:
			at = at.([]any)[key]
		}
	}
	delete(at.(map[string]any), fmt.Sprint(fact[len(fact)-1]))
	return whole
}

func limits(t *testing.T) *ast.Capabilities {
	t.Helper()
	read, err := ast.LoadCapabilitiesFile("capabilities.json")
	if err != nil {
		t.Fatal(err)
	}
	return read
}

func manifestNames(t *testing.T) []any {
	t.Helper()
	entries, err := os.ReadDir(manifests)
	if err != nil {
		t.Fatal(err)
	}
	names := []any{}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// writeModule replaces the block below "module: |", which ends where the indentation does.
func writeModule(t *testing.T, e example) {
	t.Helper()
	content, err := os.ReadFile(e.manifestPath())
	if err != nil {
		t.Fatal(err)
	}
	const heading = "  module: |\n"
	before, after, found := strings.Cut(string(content), heading)
	if !found {
		t.Fatalf("%s has no %q", e.manifestPath(), heading)
	}
	lines := strings.SplitAfter(after, "\n")
	end := slices.IndexFunc(lines, func(line string) bool { return line != "\n" && !strings.HasPrefix(line, "    ") })
	rewritten := strings.Builder{}
	rewritten.WriteString(before + heading)
	for line := range strings.Lines(e.source) {
		if line != "\n" {
			line = "    " + line
		}
		rewritten.WriteString(line)
	}
	for _, line := range lines[end:] {
		rewritten.WriteString(line)
	}
	if err := os.WriteFile(e.manifestPath(), []byte(rewritten.String()), 0o644); err != nil { //nolint:gosec // a source file
		t.Fatal(err)
	}
}
