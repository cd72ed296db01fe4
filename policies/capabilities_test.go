package policies_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/podops-dev/podops/policies"
)

var update = flag.Bool("update", false, "rewrite capabilities.json, and the modules in the manifests of the examples")

// allowed are the builtins that a rule may call. It is an allow-list since most of OPA's builtins
// are unsuitable for a rule: they use the network, the clock, the environment or randomness, or
// ignore a cancellation. A call that takes too long ends with its worker (pkg/opa/sandbox).
func allowed() []string {
	return slices.Concat(
		[]string{ // operators
			"assign", "eq", "equal", "neq", "lt", "lte", "gt", "gte",
			"plus", "minus", "mul", "div", "rem", "and", "or", "internal.member_2", "internal.member_3",
		},
		[]string{ // numbers
			"abs", "ceil", "floor", "round", "numbers.range", "format_int", "to_number",
		},
		[]string{ // collections
			"count", "max", "min", "sum", "sort", "union", "intersection",
			"array.concat", "array.reverse", "array.slice",
			"object.filter", "object.get", "object.keys", "object.remove", "object.subset", "object.union", "json.remove",
		},
		[]string{ // strings
			"concat", "contains", "startswith", "endswith", "lower", "upper", "replace", "split", "sprintf",
			"substring", "trim", "trim_left", "trim_right", "trim_prefix", "trim_suffix", "trim_space",
			"strings.any_prefix_match", "strings.any_suffix_match", "regex.match",
		},
		[]string{ // points in time in facts and parameters
			"time.add_date", "time.clock", "time.date", "time.diff", "time.format",
			"time.parse_duration_ns", "time.parse_ns", "time.parse_rfc3339_ns", "time.weekday",
		},
		[]string{ // types and versions
			"is_array", "is_boolean", "is_null", "is_number", "is_object", "is_set", "is_string", "type_name",
			"semver.compare", "semver.is_valid",
		},
		[]string{ // for authors: the engine erases print, and "opa test" names the cases of a table
			"print", "internal.print", "internal.test_case",
		},
	)
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
	want = append(want, '\n')
	if *update {
		if err := os.WriteFile("capabilities.json", want, 0o644); err != nil { //nolint:gosec // a source file
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile("capabilities.json")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("capabilities.json (-want +got), rewrite it with -update:\n%s", diff)
	}
	if !bytes.Equal(got, policies.Capabilities()) {
		t.Error("Capabilities() is not the file on disk")
	}
}
