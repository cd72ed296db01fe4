package render_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/format"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule/render"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/policies"
	"github.com/podops-dev/podops/test/golden"
)

func TestRule(t *testing.T) {
	// The key is the name of the golden file, with spaces.
	builtIn := map[string]appsv1alpha1.TransitionRule{
		"max unavailable percent": {
			Name:            "max-unavailable",
			AvailablePolicy: &appsv1alpha1.AvailablePolicy{MaxUnavailableValue: bound("25%")},
		},
		"max unavailable count": {
			Name:            "max-unavailable",
			AvailablePolicy: &appsv1alpha1.AvailablePolicy{MaxUnavailableValue: bound(3)},
		},
		"min available percent": {
			Name:            "min-available",
			AvailablePolicy: &appsv1alpha1.AvailablePolicy{MinAvailableValue: bound("0%")},
		},
		"both bounds": {
			Name: "both",
			AvailablePolicy: &appsv1alpha1.AvailablePolicy{
				MaxUnavailableValue: bound("100%"),
				MinAvailableValue:   bound(0),
			},
		},
		"older spellings": {
			Name:            "older",
			Stage:           "PreTrafficOn",
			AvailablePolicy: &appsv1alpha1.AvailablePolicy{MaxUnavailable: &appsv1alpha1.AvailableValue{Value: bound("50%")}},
		},
		"label check": {
			Name:       "ready",
			LabelCheck: &appsv1alpha1.LabelCheck{Requires: matchLabels("app.custom/ready", "true")},
		},
		"label check expressions": {
			Name:  "fit",
			Stage: appsv1alpha1.StagePostCheck,
			LabelCheck: &appsv1alpha1.LabelCheck{Requires: &metav1.LabelSelector{
				MatchLabels: map[string]string{"tier": "web", "app": "shop"},
				MatchExpressions: []metav1.LabelSelectorRequirement{
					{Key: "zone", Operator: metav1.LabelSelectorOpIn, Values: []string{"b", "a"}},
					{Key: "app.custom/forbidden", Operator: metav1.LabelSelectorOpDoesNotExist},
				},
			}},
		},
		"label check nothing required": {
			Name:       "anything",
			LabelCheck: &appsv1alpha1.LabelCheck{Requires: &metav1.LabelSelector{}},
		},
		"approval": {
			Name:     "approved",
			Approval: &appsv1alpha1.ApprovalRule{MinApprovals: 2},
		},
		"approval by the author": {
			Name:     "approved",
			Approval: &appsv1alpha1.ApprovalRule{AllowAuthor: true},
		},
		"all options": {
			Name:        "all.Options_1",
			Stage:       appsv1alpha1.StagePostCheck,
			Enforcement: appsv1alpha1.EnforcementDryRun,
			Conditions:  []string{"update", "delete"},
			Filter:      &appsv1alpha1.TransitionRuleFilter{LabelSelector: matchLabels("canary", "true")},
			LabelCheck:  &appsv1alpha1.LabelCheck{Requires: matchLabels("ready", "")},
		},
		"empty filter": {
			Name:            "budget",
			Enforcement:     appsv1alpha1.EnforcementWarn,
			Filter:          &appsv1alpha1.TransitionRuleFilter{LabelSelector: &metav1.LabelSelector{}},
			AvailablePolicy: &appsv1alpha1.AvailablePolicy{MinAvailableValue: bound(8)},
		},
	}
	for name, rule := range builtIn {
		t.Run(name, func(t *testing.T) { checkRule(t, name, rule, nil) })
	}
}

// checkRule compares the module of a rule with its golden file, and checks its other fields.
func checkRule(t *testing.T, name string, rule appsv1alpha1.TransitionRule, custom *spec.Custom) {
	t.Helper()
	before := rule.DeepCopy()
	module, err := spec.Rule(types.NamespacedName{Namespace: "shop", Name: "web"}, rule, custom)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(*before, rule); diff != "" {
		t.Errorf("Rule changed its argument (-before +after):\n%s", diff)
	}
	text := rendered(t, module)
	checkGolden(t, strings.ReplaceAll(name, " ", "-")+".rego", text)
	formatted, err := format.Source("module.rego", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(formatted), text); diff != "" {
		t.Errorf("not formatted (-want +got):\n%s", diff)
	}
	checkStrict(t, module, text)
	checkLiteral(t, module, text)
}

// failer is the common interface of *testing.T and *rapid.T.
type failer interface {
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// rendered returns the text of a module.
func rendered(t failer, module spec.Module) string {
	text, err := render.Module(module)
	if err != nil {
		t.Fatalf("rendering: %v", err)
	}
	return text
}

// checkLiteral checks that Literal is the document in the text.
func checkLiteral(t *testing.T, module spec.Module, text string) {
	t.Helper()
	parsed, err := ast.ParseModule("module.rego", text)
	if err != nil {
		t.Fatal(err)
	}
	want, err := ast.ValueFromReader(bytes.NewReader(module.Literal))
	if err != nil {
		t.Fatal(err)
	}
	if got := parsed.Rules[0].Head.Value.Value; want.Compare(got) != 0 {
		t.Errorf("the literal is %v, in the source it is %v", want, got)
	}
}

func TestRuleIgnoresTheOrderOfConditions(t *testing.T) {
	rule := appsv1alpha1.TransitionRule{
		Name:       "ready",
		Conditions: []string{"b", "c", "a"},
		LabelCheck: &appsv1alpha1.LabelCheck{Requires: matchLabels("a", "b")},
	}
	other := *rule.DeepCopy()
	slices.Sort(other.Conditions)
	if diff := cmp.Diff(source(t, other), source(t, rule)); diff != "" {
		t.Errorf("sources differ (-sorted +unsorted):\n%s", diff)
	}
}

// TestRuleQuotesHostileStrings checks, for any strings, that they are decoded unchanged and change
// nothing else in the module.
func TestRuleQuotesHostileStrings(t *testing.T) {
	check := func(t failer, name string) {
		rule := appsv1alpha1.TransitionRule{
			Name:       name,
			Conditions: []string{name},
			LabelCheck: &appsv1alpha1.LabelCheck{Requires: matchLabels("a", "b")},
		}
		object := types.NamespacedName{Namespace: name, Name: name}
		module, err := spec.Rule(object, rule, nil)
		if err != nil {
			t.Fatalf("compiling: %v", err)
		}
		text := rendered(t, module)
		parsed, err := ast.ParseModuleWithOpts("module.rego", text, ast.ParserOptions{ProcessAnnotation: true})
		if err != nil {
			t.Fatalf("parsing: %v\n%s", err, text)
		}
		want := ast.Ref{
			ast.DefaultRootDocument, ast.StringTerm("podops"), ast.StringTerm("compiled"),
			ast.StringTerm(name + "/" + name + "/" + name),
		}
		if !parsed.Package.Path.Equal(want) {
			t.Errorf("package is %v, want %v", parsed.Package.Path, want)
		}
		if len(parsed.Rules) != 2 || len(parsed.Imports) != 1 {
			t.Fatalf("module has %d rules and %d imports:\n%s", len(parsed.Rules), len(parsed.Imports), text)
		}
		document, err := ast.JSON(parsed.Rules[0].Head.Value.Value)
		if err != nil {
			t.Fatalf("reading parameters: %v", err)
		}
		wanted := map[string]any{
			"name": name, "stage": "PreCheck", "enforcement": "Enforce", "conditions": []any{name},
			"requires": map[string]any{"matchLabels": map[string]any{"a": "b"}},
		}
		if diff := cmp.Diff(wanted, document); diff != "" {
			t.Errorf("parameters differ (-want +got):\n%s", diff)
		}
	}
	for _, name := range []string{
		`"`, `\`, `"}`, "a\nb", "a\r\nb", "`", "# METADATA", "\nMETADATA", "{", "[", "}", "]", "a\n}\nallow := true",
		"\u2028", "\x00", "\x7f", "<&>", "${x}", `{{x}}`, "\nimport data.x", "/", "\U0001F600", "\ufeff",
	} {
		t.Run(name, func(t *testing.T) { check(t, name) })
	}
	t.Run("any", rapid.MakeCheck(func(t *rapid.T) {
		check(t, rapid.StringN(1, 20, -1).Draw(t, "name"))
	}))
}

func checkGolden(t *testing.T, name, got string) {
	t.Helper()
	golden.Check(t, filepath.Join("testdata", name), got)
}

// checkStrict runs "opa check --strict" over the library and the module.
func checkStrict(t *testing.T, module spec.Module, rule string) {
	t.Helper()
	sources := map[string]string{"module.rego": rule}
	err := fs.WalkDir(policies.Library(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(policies.Library(), name)
		sources[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	parsed := map[string]*ast.Module{}
	for name, text := range sources {
		if parsed[name], err = ast.ParseModule(name, text); err != nil {
			t.Fatal(err)
		}
	}
	compiler := ast.NewCompiler().WithStrict(true)
	if compiler.Compile(parsed); compiler.Failed() {
		t.Error(compiler.Errors)
	}
	want := ast.Ref{
		ast.DefaultRootDocument, ast.StringTerm("podops"), ast.StringTerm("compiled"),
		ast.StringTerm(module.ID.Ruleset.Namespace + "/" + module.ID.Ruleset.Name + "/" + module.ID.Rule),
	}
	if got := parsed["module.rego"].Package.Path; !got.Equal(want) {
		t.Errorf("package is %s, want %s", got, want)
	}
}

func source(t *testing.T, rule appsv1alpha1.TransitionRule) string {
	t.Helper()
	module, err := spec.Rule(types.NamespacedName{Namespace: "shop", Name: "web"}, rule, nil)
	if err != nil {
		t.Fatal(err)
	}
	return rendered(t, module)
}

// bound is a count or a percentage.
func bound(value any) *intstr.IntOrString {
	encoded, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	decoded := intstr.IntOrString{}
	if err := json.Unmarshal(encoded, &decoded); err != nil {
		panic(err)
	}
	return &decoded
}

func matchLabels(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}
