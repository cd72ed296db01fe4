package parameters_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule/parameters"
)

func TestTheCompilerSeesNamesAndTypes(t *testing.T) {
	for name, tc := range map[string]struct {
		declared *appsv1alpha1.PolicyParameters
		want     string
	}{
		"a schema without what narrows values": {declared(zones), `{
			"type": "object", "additionalProperties": false, "required": ["key", "minutes", "mode", "note"],
			"properties": {
				"key": {"type": "string", "minLength": 1}, "minutes": {"type": "integer"}, "mode": {"type": "string", "minLength": 1},
				"room": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
				"note": {},
				"windows": {"type": "array", "items": {
					"type": "object", "additionalProperties": false,
					"required": ["hours"], "properties": {"day": {"type": "string"}, "hours": {
						"type": "object", "additionalProperties": false, "required": ["from"], "properties": {"from": {"type": "integer"}}
					}}
				}},
				"extra": {"type": "object"},
				"limits": {"type": "object", "patternProperties": {"": {"type": "integer"}}}
			}
		}`},
		"no parameters at all": {nil, `{"type": "object", "additionalProperties": false, "properties": {"(none)": {}}}`},
		"any parameters": {
			declared(`{"type":"object","x-kubernetes-preserve-unknown-fields":true}`), `{"type": "object"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			schema, errs := parameters.Parse(tc.declared, specParameters())
			if len(errs) > 0 {
				t.Fatal(errs.ToAggregate())
			}
			raw, err := schema.JSONSchema()
			if err != nil {
				t.Fatal(err)
			}
			var got, want any
			if err := json.Unmarshal(raw, &got); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(tc.want), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("schema (-want +got):\n%s", diff)
			}
		})
	}
}
