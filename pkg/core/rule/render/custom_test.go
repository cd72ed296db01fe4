package render_test

import (
	"encoding/json"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
)

const allowModule = "package rule\n\nallow if input.pod.ready\n"

func inline() *appsv1alpha1.RegoRule { return &appsv1alpha1.RegoRule{Module: allowModule} }

func TestRuleOfAUser(t *testing.T) {
	shared := &appsv1alpha1.RegoRule{
		PolicyRef:  &appsv1alpha1.PolicyReference{Name: "rate-limit"},
		Parameters: &apiextensionsv1.JSON{Raw: []byte(`{"permits": 3}`)},
	}
	parameters := json.RawMessage(`{"permits": 3, "minutes": 10, "zones": ["a", "b"], "names": {"z": null, "a": "\u2028"}}`)
	// The key is the name of the golden file, with spaces.
	for name, tc := range map[string]struct {
		rule   appsv1alpha1.TransitionRule
		custom spec.Custom
	}{
		"rego allow": {
			rule:   appsv1alpha1.TransitionRule{Name: "ready", Rego: inline()},
			custom: spec.Custom{Source: allowModule, Entry: spec.EntryAllow},
		},
		"rego deny": {
			rule:   appsv1alpha1.TransitionRule{Name: "free", Rego: inline()},
			custom: spec.Custom{Source: "package rule\n\ndeny contains \"no\"\n", Entry: spec.EntryDeny},
		},
		"rego policy with parameters": {
			rule:   appsv1alpha1.TransitionRule{Name: "rate", Rego: shared},
			custom: spec.Custom{Source: allowModule, Entry: spec.EntryAllow, Parameters: parameters},
		},
		"rego warn": {
			rule:   appsv1alpha1.TransitionRule{Name: "ready", Rego: inline(), Enforcement: appsv1alpha1.EnforcementWarn},
			custom: spec.Custom{Source: allowModule, Entry: spec.EntryAllow},
		},
		"rego dry run": {
			rule:   appsv1alpha1.TransitionRule{Name: "ready", Rego: inline(), Enforcement: appsv1alpha1.EnforcementDryRun},
			custom: spec.Custom{Source: allowModule, Entry: spec.EntryAllow},
		},
		"rego filter and conditions": {
			rule: appsv1alpha1.TransitionRule{
				Name: "ready", Rego: inline(), Conditions: []string{"update", "delete"},
				Filter: &appsv1alpha1.TransitionRuleFilter{LabelSelector: matchLabels("canary", "true")},
			},
			custom: spec.Custom{Source: allowModule, Entry: spec.EntryAllow},
		},
		"rego post check": {
			rule:   appsv1alpha1.TransitionRule{Name: "ready", Rego: inline(), Stage: appsv1alpha1.StagePostCheck},
			custom: spec.Custom{Source: allowModule, Entry: spec.EntryAllow},
		},
	} {
		t.Run(name, func(t *testing.T) { checkRule(t, name, tc.rule, &tc.custom) })
	}
}

// TestRuleQuotesParameters checks, for any parameters, that they are decoded unchanged and change
// nothing else in the module.
func TestRuleQuotesParameters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.MapOfN(rapid.String(), rapid.String(), 0, 4).Draw(t, "parameters")
		encoded, err := json.Marshal(values)
		if err != nil {
			t.Fatal(err)
		}
		custom := spec.Custom{Source: allowModule, Entry: spec.EntryAllow, Parameters: encoded}
		module, err := spec.Rule(types.NamespacedName{Namespace: "shop", Name: "web"},
			appsv1alpha1.TransitionRule{Name: "ready", Rego: inline()}, &custom)
		if err != nil {
			t.Fatal(err)
		}
		text := rendered(t, module)
		parsed, err := ast.ParseModule("module.rego", text)
		if err != nil {
			t.Fatalf("parsing: %v\n%s", err, text)
		}
		if len(parsed.Rules) != 3 || len(parsed.Imports) != 1 {
			t.Fatalf("module has %d rules and %d imports:\n%s", len(parsed.Rules), len(parsed.Imports), text)
		}
		want, err := ast.InterfaceToValue(values)
		if err != nil {
			t.Fatal(err)
		}
		if got := parsed.Rules[1].Head.Value.Value; want.Compare(got) != 0 {
			t.Fatalf("parameters are %v, want %v", got, want)
		}
	})
}
