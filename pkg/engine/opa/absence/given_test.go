package absence_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/engine/opa/absence"
)

func TestFindIn(t *testing.T) {
	const tier, team = `input.pod.labels["tier"]`, `input.pod.labels["team"]`
	engine := newEngine(t)
	for name, test := range map[string]struct {
		module string

		// inputs are the labels of the pod in each input.
		inputs []string
		want   []absence.Finding

		// parameters are what each input has, and schema is the policy schema.
		parameters, schema string
	}{
		"a value that the module names": {
			module: `deny contains "x" if input.pod.labels.tier != "gold"`,
			inputs: []string{`{"tier": "silver"}`},
			want:   []absence.Finding{{Fact: tier, Form: absence.Absent, Permitted: "gold"}},
		},
		"a value that another input has": {
			module: `deny contains "x" if count(split(input.pod.labels.tier, "0")) != 4`,
			inputs: []string{`{"tier": "10000"}`, `{"tier": "1000"}`, `{"tier": "5"}`},
			want:   []absence.Finding{{Fact: tier, Form: absence.Absent, Permitted: "1000"}},
		},
		"a JSON document": {
			module: `deny contains "x" if json.unmarshal(input.pod.labels.tier).state != "done"`,
			inputs: []string{`{"tier": "{\"state\": \"open\"}"}`, `{"tier": "{\"state\": \"done\"}"}`},
			want:   []absence.Finding{{Fact: tier, Form: absence.Absent, Permitted: `{"state": "done"}`}},
		},
		"a JSON document whose member is withheld": {
			module: `deny contains "x" if json.unmarshal(input.pod.labels.tier).hold == true`,
			inputs: []string{`{"tier": "{\"hold\": true}"}`, `{"tier": "{\"hold\": false}"}`},
		},
		"the input in which the pod waits": {
			module: `deny contains "x" if input.pod.labels.tier != "gold"`,
			inputs: []string{`{"tier": "gold"}`, `{"tier": "silver"}`},
			want:   []absence.Finding{{Fact: tier, Form: absence.Absent, Permitted: "gold", Input: 1}},
		},
		"a pair": {
			module: "_gold if input.pod.labels.tier == \"gold\"\n_gold if not input.pod.labels.tier\n_known := {input.pod.labels.team, \"shop\"} if _gold\n" +
				`deny contains "x" if not _gold` + "\n" + `deny contains "x" if count(_known) == 2`,
			inputs: []string{`{"tier": "silver", "team": "search"}`},
			want: []absence.Finding{
				{Fact: team, Form: absence.Absent, Permitted: "shop", With: []string{"no " + tier}},
			},
		},
		"a module that is right": {
			module: `allow if input.pod.labels.tier == "gold"`,
			inputs: []string{`{"tier": "silver"}`, `{"tier": "gold"}`},
		},
		"a value that is withheld": {
			module: `deny contains "x" if input.pod.labels.hold == "true"`,
			inputs: []string{`{"hold": "true"}`, `{"hold": "false"}`},
		},
		"a parameter": {
			module:     `deny contains "x" if input.pod.labels.tier != input.parameters.tier`,
			inputs:     []string{`{"tier": "silver"}`, `{"tier": "gold"}`},
			parameters: `{"tier": "gold"}`, schema: `{"type": "object", "properties": {"tier": {"type": "string"}}}`,
			want: []absence.Finding{
				{Fact: "input.parameters.tier", Form: absence.Absent, Permitted: "silver"},
				{Fact: tier, Form: absence.Absent, Permitted: "gold"},
			},
		},
		"a parameter that is required": {
			module:     `deny contains "x" if input.pod.labels.tier != input.parameters.tier` + "\n" + `deny contains "x" if not input.pod.labels.tier`,
			inputs:     []string{`{"tier": "silver"}`, `{"tier": "gold"}`},
			parameters: `{"tier": "gold"}`, schema: `{"type": "object", "properties": {"tier": {"type": "string"}}, "required": ["tier"]}`,
		},
		"a time that is 0": {
			module: `deny contains "x" if input.now - input.pod.available_since < 300000000000`,
			inputs: []string{`{}`},
			want:   []absence.Finding{{Fact: "input.pod.available_since", Form: absence.Zero, Permitted: "30 days ago"}},
		},
		"a list of numbers": {
			module:     `deny contains "x" if not time.clock(input.now)[0] in input.parameters.hours`,
			inputs:     []string{`{}`},
			parameters: `{"hours": [7, 8]}`, schema: `{"type": "object", "properties": {"hours": {"type": "array", "items": {"type": "integer"}}}}`,
			want: []absence.Finding{{Fact: "input.parameters.hours", Form: absence.Absent, Permitted: "[10]"}},
		},
		"a comment": {
			module: "# podops: absent=permits\n" + `deny contains "x" if input.pod.labels.tier != "gold"`,
			inputs: []string{`{"tier": "silver"}`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var inputs []json.RawMessage
			for _, labels := range test.inputs {
				inputs = append(inputs, json.RawMessage(fmt.Sprintf(`{
					"stage": "PreCheck", "now": 1767607200000000000, "parameters": %s,
					"operation": {"id": "pod-delete", "type": "delete", "cause": "", "since": 1767607200000000000, "request": {"method": "", "actor": "", "user": "", "groups": [], "groups_truncated": false}},
					"pod": {
						"name": "web-0", "namespace": "shop", "uid": "web-0", "labels": %s, "annotations": {},
						"owner": {"kind": "Deployment", "name": "web", "uid": "web"}, "revision": {"current": "1", "state": "Newest"},
						"node": "node-1", "created": 1, "ready": true, "available": true, "available_since": 1767607140000000000, "permitted": false, "skip_rules": []
					},
					"pods": [], "permits": [], "counts": {"selected": 1, "desired": 1, "available": 1, "reserved": 0},
					"namespace": {"name": "shop", "labels": {}},
					"rule": {"name": "rule", "stage": "PreCheck", "enforcement": "Enforce", "conditions": []}
				}`, cmp.Or(test.parameters, "{}"), labels)))
			}
			custom := spec.Custom{Source: "package rule\n\n" + test.module + "\n", ParametersSchema: json.RawMessage(test.schema), Parameters: json.RawMessage(test.parameters)}
			got, err := absence.FindIn(t.Context(), engine, custom, inputs)
			if err != nil {
				t.Fatal(err)
			}
			if diff := gocmp.Diff(test.want, got.Findings, cmpopts.IgnoreFields(absence.Finding{}, "Place"), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

// parts are inputs as Rego tests give them: what the test is about, and sometimes what no pod has.
func parts() []json.RawMessage {
	var parts []json.RawMessage
	for _, text := range []string{
		`{}`, `{"pod": {"labels": {"tier": "silver", "team": "search"}}}`, `{"pod": {"labels": {"tier": "gold"}, "annotations": {"tier": "silver"}}}`,
		`{"operation": {"type": "restart"}, "namespace": {"labels": {"tier": "silver"}}}`, `{"pods": [{"labels": {"tier": "silver"}}, {}], "pod": {"labels": {"tier": "bronze"}}}`,
		`{"pod": null}`, `{"pods": {"web-0": {}}, "pod": {"labels": ["tier"], "images": [{"tag": "2"}, "web"]}}`,
	} {
		parts = append(parts, json.RawMessage(text))
	}
	return parts
}

func TestFindInParts(t *testing.T) {
	const tier = `input.pod.labels["tier"]`
	for name, test := range map[string]struct {
		module string
		want   []absence.Finding
	}{
		"a label": {
			module: `deny contains "x" if input.pod.labels.tier != "gold"`,
			want:   []absence.Finding{{Fact: tier, Form: absence.Absent, Permitted: "gold", Input: 1}},
		},
		"a label beside other facts, which a usual pod has": {
			module: `deny contains "x" if { input.pod.labels.tier != "gold"; input.pod.owner.kind == "Deployment"; input.counts.desired == 1 }`,
			want:   []absence.Finding{{Fact: tier, Form: absence.Absent, Permitted: "gold", Input: 1}},
		},
		"a label with other pods, which are usual": {
			module: `deny contains "x" if { input.pods[0].labels.tier == "silver"; input.pods[1].available; input.pod.labels.tier != "gold" }`,
			want:   []absence.Finding{{Fact: tier, Form: absence.Absent, Permitted: "gold", Input: 4}},
		},
		"a module that is right": {module: `allow if input.pod.labels.tier == "gold"`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := absence.FindIn(t.Context(), newEngine(t), spec.Custom{Source: "package rule\n\n" + test.module + "\n"}, parts())
			if err != nil {
				t.Fatal(err)
			}
			if diff := gocmp.Diff(test.want, got.Findings, cmpopts.IgnoreFields(absence.Finding{}, "Place"), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}
