package opa_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/engine/opa"
)

const zones = `package lib.zones

of(pod) := pod.labels.zone

others contains of(pod) if some pod in input.pods
`

const days = `package config["days"]

off := ["2026-12-25"]
`

// joined returns a module with lib/zones.rego and config/days.rego.
func joined(module string) string {
	return spec.Join(module, []spec.Part{{File: "config/days.rego", Source: days}, {File: "lib/zones.rego", Source: zones}})
}

func TestAModuleNeedsWhatItsImportsRead(t *testing.T) {
	found, err := newEngine(t, opa.Options{}).Inspect(t.Context(), opa.Source{Module: joined(`package rule.spread

import data.config.days
import data.lib.zones

allow if {
	not zones.of(input.pod) in zones.others
	every day in days.off { day != "2026-12-24" }
}

reason := "its zone has another pod"
`)})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(opa.Inspection{Entry: spec.EntryAllow, Needs: opa.Needs{Pods: true}}, found, cmpopts.IgnoreFields(opa.Inspection{}, "Parameters")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestImportsThatAreRejected(t *testing.T) {
	for name, tc := range map[string]struct {
		source string
		want   string
	}{
		"a package that is not imported": {
			joined("package rule\n\nallow if data.lib.zone.of(input.pod)\n"),
			"3:10: podops_contract_error: reference to data.lib.zone.of: spec.imports of a PodTransitionPolicy names the policies that its module may refer to",
		},
		"an import that is not imported": {
			joined("package rule\n\nimport data.config.day\n\nallow if day.off\n"),
			"3:1: podops_contract_error: import of data.config.day: spec.imports",
		},
		"a constant that there is not": {
			joined("package rule\n\nallow if not data.config.days.of\n"),
			"3:14: podops_contract_error: reference to data.config.days.of: that package has no rule of",
		},
		"a function that there is not": {
			joined("package rule\n\nimport data.lib.zones\n\nallow if zones.off(input.pod)\n"), "5:10: rego_type_error: undefined function data.lib.zones.off",
		},
		"all libraries": {joined("package rule\n\nallow if data.lib[input.pod.name]\n"), "3:10: podops_contract_error: reference to data.lib"},
		"a package of another name": {
			spec.Join("package rule\n\nallow if true\n", []spec.Part{{File: "lib/zone.rego", Source: zones}}),
			"lib/zone.rego:1:1: podops_contract_error: the package is lib.zones: it must be lib.zone, after the name of the PodTransitionPolicy",
		},
		"the rules of PodOps": {
			spec.Join("package rule\n\nallow if true\n", []spec.Part{{File: "podops/lib.rego", Source: "package podops.lib\n\nx := 1\n"}}), "the package is podops.lib",
		},
		"the same file twice": {
			spec.Join("package rule\n\nallow if true\n", []spec.Part{{File: "lib/zones.rego", Source: zones}, {File: "lib/zones.rego", Source: zones}}),
			"lib/zones.rego is imported twice",
		},
		"a library that reads the rule": {
			spec.Join("package rule\n\nallow if true\n", []spec.Part{{File: "lib/a.rego", Source: "package lib.a\n\nx := data.rule.allow\n"}}),
			"lib/a.rego:3:6: podops_contract_error: reference to data.rule.allow: a module may refer to its own rules and its imports",
		},
		"a library that reads parameters": {
			spec.Join("package rule\n\nallow if true\n", []spec.Part{{File: "lib/a.rego", Source: "package lib.a\n\nx := input.parameters.y\n"}}),
			"lib/a.rego:3:6: podops_contract_error: reference to input.parameters.y: a library has no parameters: pass them as arguments of its functions",
		},
		"a library with a builtin that rules may not call": {
			spec.Join("package rule\n\nallow if true\n", []spec.Part{{File: "lib/a.rego", Source: "package lib.a\n\nx := http.send({})\n"}}),
			"lib/a.rego:3:6: rego_type_error: undefined function http.send",
		},
		"a library with a misspelt fact": {
			spec.Join("package rule\n\nallow if true\n", []spec.Part{{File: "lib/a.rego", Source: "package lib.a\n\nx := input.pod.lables\n"}}), "lib/a.rego:3:6: rego_type_error",
		},
		"a library that cannot be parsed": {
			spec.Join("package rule\n\nallow if true\n", []spec.Part{{File: "lib/a.rego", Source: "package lib.a\n\nx := }\n"}}), "lib/a.rego:3:6: rego_parse_error",
		},
		"rules that call each other": {
			spec.Join("package rule\n\nallow if true\n", []spec.Part{
				{File: "lib/a.rego", Source: "package lib.a\n\nx := data.lib.b.x\n"}, {File: "lib/b.rego", Source: "package lib.b\n\nx := data.lib.a.x\n"},
			}), "rego_recursion_error",
		},
		"too much in all": {
			spec.Join("package rule\n\nallow if true\n", []spec.Part{{File: "lib/a.rego", Source: "package lib.a\n" + strings.Repeat("#", spec.MaxSourceBytes)}}),
			"the module and its imports have 65606 bytes, and at most 65536 are allowed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newEngine(t, opa.Options{}).Inspect(t.Context(), opa.Source{Module: tc.source})
			if !errors.As(err, new(*opa.CompileError)) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
