package opa_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/engine/opa"
)

func TestInspect(t *testing.T) {
	for name, tc := range map[string]struct {
		source string
		want   opa.Inspection
	}{
		"allow": {
			source: "package rule\n\nallow if input.pod.ready\n",
			want:   opa.Inspection{Entry: spec.EntryAllow},
		},
		"allow with a default, a reason and an import": {
			source: "package rule\n\nimport rego.v1\n\ndefault allow := false\n\nallow if input.pod.ready\n\nreason := \"not ready\"\n",
			want:   opa.Inspection{Entry: spec.EntryAllow},
		},
		"deny": {
			source: "package rule\n\ndeny contains \"not ready\" if not input.pod.ready\n",
			want:   opa.Inspection{Entry: spec.EntryDeny},
		},
		"a package below": {
			source: "package rule.change_freeze\n\nallow if helper\n\nhelper if data.rule.change_freeze.other\n\nother if input.pod.ready\n",
			want:   opa.Inspection{Entry: spec.EntryAllow},
		},
		"its own rules by their full name": {
			source: "package rule\n\nallow if data.rule.helper\n\nhelper if input.pod.ready\n",
			want:   opa.Inspection{Entry: spec.EntryAllow},
		},
		"the counts": {
			source: "package rule\n\nallow if input.counts.available > 3\n",
			want:   opa.Inspection{Entry: spec.EntryAllow, Needs: opa.Needs{Counts: true}},
		},
		"the clock, in a function": {
			source: "package rule\n\nallow if late(3)\n\nlate(n) if input.now > n\n",
			want:   opa.Inspection{Entry: spec.EntryAllow, Needs: opa.Needs{Now: true}},
		},
		"the pods, by an import": {
			source: "package rule\n\nimport input.pods as others\n\nallow if count(others) > 3\n",
			want:   opa.Inspection{Entry: spec.EntryAllow, Needs: opa.Needs{Pods: true}},
		},
		"the permits, in a comprehension": {
			source: "package rule\n\nallow if count([p | some p in input.permits]) < 3\n",
			want:   opa.Inspection{Entry: spec.EntryAllow, Needs: opa.Needs{Permits: true}},
		},
		"the namespace, under with": {
			source: "package rule\n\nallow if input.namespace.labels.x with input.pod.name as \"y\"\n",
			want:   opa.Inspection{Entry: spec.EntryAllow, Needs: opa.Needs{Namespace: true}},
		},
		"the node, whose conditions are not those of the pod": {
			source: "package rule\n\nallow if input.node.conditions.Ready == \"True\"\n",
			want:   opa.Inspection{Entry: spec.EntryAllow, Needs: opa.Needs{Node: true}},
		},
		"the input as a whole": {
			source: "package rule\n\nallow if object.get(input, \"now\", 0) > 3\n",
			want:   opa.Inspection{Entry: spec.EntryAllow, Needs: everything()},
		},
		"the input as a whole, by an import": {
			source: "package rule\n\nimport input as facts\n\nallow if facts != {}\n",
			want:   opa.Inspection{Entry: spec.EntryAllow, Needs: everything()},
		},
		"any part of the input": {
			source: "package rule\n\nallow if {\n\tsome part\n\tis_number(input[part])\n}\n",
			want:   opa.Inspection{Entry: spec.EntryAllow, Needs: everything()},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := newEngine(t, opa.Options{}).Inspect(t.Context(), opa.Source{Module: tc.source})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreFields(opa.Inspection{}, "Hints", "Parameters")); diff != "" {
				t.Errorf("inspection differs (-want +got):\n%s", diff)
			}
		})
	}
}

func everything() opa.Needs {
	return opa.Needs{Counts: true, Now: true, Pods: true, Permits: true, Namespace: true, Owner: true, Node: true}
}

func TestInspectRejects(t *testing.T) {
	const contract = "podops_contract_error"
	for name, tc := range map[string]struct {
		source string
		want   opa.Problem // without its message

		// message is a part of the message.
		message string
	}{
		"a parse error": {
			source: "package rule\n\nallow := }\n",
			want:   opa.Problem{Row: 3, Column: 10, Code: "rego_parse_error"},
		},
		"nothing at all": {
			source: "",
			want:   opa.Problem{Code: "rego_parse_error"},
		},
		"a comment alone": {
			source: "# hello\n",
			want:   opa.Problem{Code: "rego_parse_error"},
		},
		"the network": {
			source: "package rule\n\nallow if http.send({})\n",
			want:   opa.Problem{Row: 3, Column: 10, Code: "rego_type_error"},
		},
		"the clock": {
			source: "package rule\n\nallow if time.now_ns() > 3\n",
			want:   opa.Problem{Row: 3, Column: 10, Code: "rego_type_error"},
		},
		"what strict mode calls an error": {
			source: "package rule\n\nallow if {\n\ty := 2\n}\n",
			want:   opa.Problem{Row: 4, Column: 2, Code: "rego_compile_error"},
		},
		"a misspelled fact": {
			source:  "package rule\n\nallow if input.pod.lables.x\n",
			want:    opa.Problem{Row: 3, Column: 10, Code: "rego_type_error"},
			message: "lables.x; existing fields: annotations, available, available_since, conditions, created, images, labels",
		},
		"a misspelled fact of another pod": {
			source: "package rule\n\nallow if {\n\tsome pod in input.pods\n\tpod.availabel\n}\n",
			want:   opa.Problem{Row: 5, Column: 2, Code: "rego_type_error"},
		},
		"a fact of another type": {
			source: "package rule\n\nallow if input.pod.available == \"true\"\n",
			want:   opa.Problem{Row: 3, Column: 10, Code: "rego_type_error"},
		},
		"a size": {
			source:  "package rule\n\nallow if true\n" + strings.Repeat("#", spec.MaxModuleBytes),
			want:    opa.Problem{Code: contract},
			message: "16384",
		},
		"too many rules": {
			source:  "package rule\n\nallow if true\n\n" + strings.Repeat("x if true\n", 200),
			want:    opa.Problem{Row: 204, Column: 1, Code: contract},
			message: "200",
		},
		"another package": {
			source:  "package podops.rules.labelcheck\n\nallow if true\n",
			want:    opa.Problem{Row: 1, Column: 1, Code: contract},
			message: "the package is podops.rules.labelcheck",
		},
		"a package two below": {
			source: "package rule.a.b\n\nallow if true\n",
			want:   opa.Problem{Row: 1, Column: 1, Code: contract},
		},
		"an import of data": {
			source: "package rule\n\nimport data.podops.lib.quota\n\nallow if quota\n",
			want:   opa.Problem{Row: 3, Column: 1, Code: contract},
		},
		"an import of the future": {
			source: "package rule\n\nimport future.keywords\n\nallow if true\n",
			want:   opa.Problem{Row: 3, Column: 1, Code: contract},
		},
		"a library rule": {
			source: "package rule\n\nallow if data.podops.lib.quota.at_most(1, 2)\n",
			want:   opa.Problem{Row: 3, Column: 10, Code: contract},
		},
		"all data": {
			source: "package rule\n\nallow if {\n\tsome x in data\n\tx\n}\n",
			want:   opa.Problem{Row: 4, Column: 12, Code: contract},
		},
		"computed data": {
			source: "package rule\n\nallow if data[input.pod.name]\n",
			want:   opa.Problem{Row: 3, Column: 10, Code: contract},
		},
		"its whole package": {
			source: "package rule\n\nallow if count(data.rule) > 0\n",
			want:   opa.Problem{Row: 3, Column: 16, Code: contract},
		},
		"a rule of its own that there is not": {
			source:  "package rule\n\nallow if not data.rule.frozn\n\nfrozen if true\n",
			want:    opa.Problem{Row: 3, Column: 14, Code: contract},
			message: "data.rule.frozn",
		},
		"the rules of the package above": {
			source: "package rule.a\n\nallow if data.rule.helper\n\nhelper if true\n",
			want:   opa.Problem{Row: 3, Column: 10, Code: contract},
		},
		"other data in a with": {
			source: "package rule\n\nallow if true with data.podops.lib as 1\n",
			want:   opa.Problem{Row: 3, Column: 20, Code: contract},
		},
		"a template string": {
			source: "package rule\n\nallow if $\"{data.podops.entry}\" == \"x\"\n",
			want:   opa.Problem{Row: 3, Column: 10, Code: "rego_parse_error"},
		},
		"no entry point": {
			source:  "package rule\n\nallowed if true\n",
			want:    opa.Problem{Row: 1, Column: 1, Code: contract},
			message: "allow if",
		},
		"two entry points": {
			source: "package rule\n\nallow if true\n\ndeny contains \"x\"\n",
			want:   opa.Problem{Row: 5, Column: 1, Code: contract},
		},
		"allow as a set": {
			source: "package rule\n\nallow contains \"x\"\n",
			want:   opa.Problem{Row: 3, Column: 1, Code: contract},
		},
		"allow as a function": {
			source: "package rule\n\nallow(x) if x\n",
			want:   opa.Problem{Row: 3, Column: 1, Code: contract},
		},
		"allow as an object": {
			source: "package rule\n\nallow.x if true\n",
			want:   opa.Problem{Row: 3, Column: 1, Code: contract},
		},
		"deny as a value": {
			source: "package rule\n\ndeny := \"x\"\n",
			want:   opa.Problem{Row: 3, Column: 1, Code: contract},
		},
		"deny as an object": {
			source: "package rule\n\ndeny[\"x\"] := \"x\"\n",
			want:   opa.Problem{Row: 3, Column: 1, Code: contract},
		},
		"allow that is never true": {
			source:  "package rule\n\nallow := input.pod.name\n",
			want:    opa.Problem{Row: 3, Column: 1, Code: contract},
			message: "allow is of type string",
		},
		"a reason that is no text": {
			source: "package rule\n\nallow if input.pod.ready\n\nreason := input.counts\n",
			want:   opa.Problem{Row: 5, Column: 1, Code: contract},
		},
		"denials without a message": {
			source: "package rule\n\ndeny contains {\"msg\": \"x\"}\n",
			want:   opa.Problem{Row: 3, Column: 1, Code: contract},
		},
		"reason as a set": {
			source: "package rule\n\nallow if false\n\nreason contains \"x\"\n",
			want:   opa.Problem{Row: 5, Column: 1, Code: contract},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newEngine(t, opa.Options{}).Inspect(t.Context(), opa.Source{Module: tc.source})
			rejected := &opa.CompileError{}
			if !errors.As(err, &rejected) || len(rejected.Problems) == 0 {
				t.Fatalf("got %v, want a CompileError", err)
			}
			got := rejected.Problems[0]
			if got.Message == "" || !strings.Contains(got.Message, tc.message) {
				t.Errorf("the message is %q, without %q", got.Message, tc.message)
			}
			got.Message = ""
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("problem differs (-want +got):\n%s\n%v", diff, err)
			}
		})
	}
}

// TestInspectChecksParameters has a schema of the parameters, which replaces the open one.
func TestInspectChecksParameters(t *testing.T) {
	schema := json.RawMessage(`{"type": "object", "additionalProperties": false, "properties": {"limit": {"type": "number"}}}`)
	for _, tc := range []struct {
		reads  string
		schema json.RawMessage
		ok     bool
	}{
		{reads: "input.parameters.limit > 1", schema: schema, ok: true},
		{reads: "input.parameters.limt > 1", schema: schema},
		{reads: `input.parameters.limit == "1"`, schema: schema},
		{reads: "input.parameters.limt > 1", ok: true},
	} {
		_, err := newEngine(t, opa.Options{}).Inspect(t.Context(), opa.Source{Module: "package rule\n\nallow if " + tc.reads + "\n", ParametersSchema: tc.schema})
		if (err == nil) != tc.ok {
			t.Errorf("%s under %s: %v", tc.reads, tc.schema, err)
		}
	}
	if _, err := newEngine(t, opa.Options{}).Inspect(t.Context(), opa.Source{Module: "package rule\n\nallow if true\n", ParametersSchema: json.RawMessage("[")}); err == nil {
		t.Error("accepted a schema that is not JSON")
	}
}
