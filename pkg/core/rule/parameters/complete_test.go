package parameters_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"pgregory.net/rapid"

	"github.com/podops-dev/podops/pkg/core/rule/parameters"
)

const zones = `{
	"type": "object",
	"required": ["key"],
	"properties": {
		"key":     {"type": "string", "minLength": 1},
		"minutes": {"type": "integer", "minimum": 1, "default": 5},
		"room":    {"x-kubernetes-int-or-string": true},
		"mode":    {"type": "string", "enum": ["hard", "soft"], "default": "hard"},
		"note":    {"type": "string", "nullable": true, "default": "none"},
		"windows": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["day"], "items": {
			"type": "object",
			"properties": {"day": {"type": "string"}, "hours": {"type": "object", "default": {}, "properties": {"from": {"type": "integer", "default": 9}}}}
		}},
		"extra":   {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
		"limits":  {"type": "object", "additionalProperties": {"type": "integer"}}
	}
}`

func parse(t *testing.T, schema string) *parameters.Schema {
	t.Helper()
	parsed, errs := parameters.Parse(declared(schema), specParameters())
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	return parsed
}

func regoParameters() *field.Path {
	return field.NewPath("spec", "rules").Index(0).Child("rego", "parameters")
}

func TestDefaultsAreFilledIn(t *testing.T) {
	for name, tc := range map[string]struct{ given, want string }{
		"missing parameters": {`{"key":"zone"}`, `{"key":"zone","minutes":5,"mode":"hard","note":"none"}`},
		"not the given parameters": {
			`{"note":"x","minutes":7,"key":"zone","mode":"soft"}`, `{"key":"zone","minutes":7,"mode":"soft","note":"x"}`,
		},
		"in place of a null that the schema does not take": {
			`{"key":"zone","minutes":null,"note":null}`, `{"key":"zone","minutes":5,"mode":"hard","note":null}`,
		},
		"in items, and in defaults": {
			`{"key":"zone","windows":[{"day":"Fri"}]}`,
			`{"key":"zone","minutes":5,"mode":"hard","note":"none","windows":[{"day":"Fri","hours":{"from":9}}]}`,
		},
		"what the schema leaves open stays": {
			`{"key":"zone","room":"3%","extra":{"any":[{"thing":1}]},"limits":{"a":1}}`,
			`{"extra":{"any":[{"thing":1}]},"key":"zone","limits":{"a":1},"minutes":5,"mode":"hard","note":"none","room":"3%"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, errs := parse(t, zones).Complete(json.RawMessage(tc.given), regoParameters())
			if len(errs) > 0 {
				t.Fatal(errs.ToAggregate())
			}
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("completed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParametersThatDoNotFit(t *testing.T) {
	for name, tc := range map[string]struct {
		given string
		want  []string
	}{
		"none, where one is required": {``, []string{`.key: Required value: the policy requires it`}},
		"not JSON":                    {`{`, []string{`: Invalid value: "": is not JSON: unexpected end of JSON input`}},
		"not an object":               {`[1]`, []string{`: Invalid value: "": must be an object`}},
		"a name that is not there": {
			`{"key":"zone","minuts":3}`,
			[]string{`.minuts: Forbidden: the policy has no such parameter; it has extra, key, limits, minutes, mode, note, room, windows`},
		},
		"a name that every object of Kubernetes has": {
			`{"key":"zone","kind":"x"}`,
			[]string{`.kind: Forbidden: the policy has no such parameter; it has extra, key, limits, minutes, mode, note, room, windows`},
		},
		"a name that is not there, in an item": {
			`{"key":"zone","windows":[{"day":"Fri","horus":1}]}`, []string{`.windows[0].horus: Forbidden: is not in the schema of the policy`},
		},
		"another type": {`{"key":3}`, []string{`.key: Invalid value: "integer": must be of type string: "integer"`}},
		"a null":       {`{"key":null}`, []string{`.key: Invalid value: "null": must be of type string: "null"`}},
		"out of bounds": {
			`{"key":"","minutes":0}`,
			[]string{`.key: Invalid value: "": should be at least 1 chars long`, `.minutes: Invalid value: 0: should be greater than or equal to 1`},
		},
		"none of the values":      {`{"key":"zone","mode":"none"}`, []string{`.mode: Invalid value: "none": should be one of [hard soft]`}},
		"a number or a string":    {`{"key":"zone","room":true}`, []string{`.room: Invalid value: "boolean": must be of type integer,string: "boolean"`}},
		"a wrong value in a map":  {`{"key":"zone","limits":{"a":"b"}}`, []string{`.limits.a: Invalid value: "string": must be of type integer: "string"`}},
		"one key twice in a list": {`{"key":"zone","windows":[{"day":"Fri"},{"day":"Fri"}]}`, []string{`.windows[1]: Duplicate value: {"day":"Fri"}`}},
		"a long value, cut": {
			`{"key":"zone","mode":"` + strings.Repeat("x", 100) + `"}`,
			[]string{`.mode: Invalid value: "` + strings.Repeat("x", 64) + `...": should be one of [hard soft]`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, errs := parse(t, zones).Complete(json.RawMessage(tc.given), regoParameters())
			var got []string
			for _, err := range errs {
				got = append(got, strings.TrimPrefix(err.Error(), "spec.rules[0].rego.parameters"))
			}
			if diff := cmp.Diff(tc.want, got, cmp.Transformer("sort", func(s []string) map[string]bool {
				set := map[string]bool{}
				for _, one := range s {
					set[one] = true
				}
				return set
			})); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAPolicyWithoutASchemaTakesNone(t *testing.T) {
	schema, errs := parameters.Parse(nil, specParameters())
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	if got, errs := schema.Complete(nil, regoParameters()); len(errs) > 0 || string(got) != `{}` {
		t.Errorf("got %s, %v", got, errs)
	}
	_, errs = schema.Complete(json.RawMessage(`{"a":1}`), regoParameters())
	if len(errs) != 1 || errs[0].Error() != "spec.rules[0].rego.parameters.a: Forbidden: the policy takes no parameters" {
		t.Errorf("got %v", errs)
	}
}

func TestParametersAreBounded(t *testing.T) {
	wide := fmt.Sprintf(`{"type":"object","properties":{"a":{"type":"string"},"l":{"type":"array","items":{"type":"object","properties":{"x":{"type":"string","default":%q}}}}}}`,
		strings.Repeat("x", 1000))
	branches := `{"type":"object","properties":{"l":{"type":"array","items":{"type":"integer","anyOf":[` +
		strings.TrimSuffix(strings.Repeat(`{"minimum":1},`, 1000), ",") + `]}}}}`
	for name, tc := range map[string]struct{ schema, given, want string }{
		"in bytes":                       {wide, `{"a":"` + strings.Repeat("x", parameters.MaxBytes) + `"}`, "Too long: may not be more than 32768 bytes"},
		"in bytes that defaults add":     {wide, `{"l":[` + strings.TrimSuffix(strings.Repeat("{},", 100), ",") + `]}`, "defaults may add at most 32768 bytes"},
		"in the work of validating them": {branches, `{"l":[` + strings.TrimSuffix(strings.Repeat("0,", 10000), ",") + `]}`, "take too long to validate"},
	} {
		t.Run(name, func(t *testing.T) {
			_, errs := parse(t, tc.schema).Complete(json.RawMessage(tc.given), regoParameters())
			if len(errs) != 1 || !strings.Contains(errs[0].Error(), tc.want) || errs[0].Field != "spec.rules[0].rego.parameters" {
				t.Errorf("got %.300v, want %q", errs, tc.want)
			}
		})
	}
}

func TestTenErrorsAreReported(t *testing.T) {
	_, errs := parse(t, zones).Complete(json.RawMessage(`{"key":"zone","windows":[`+strings.TrimSuffix(strings.Repeat("1,", 30), ",")+`]}`), regoParameters())
	if len(errs) != 11 || errs[10].Error() != "spec.rules[0].rego.parameters: Forbidden: and 20 more errors" {
		t.Errorf("got %v", errs)
	}
	_, errs = parameters.Parse(declared(`{"type":"object","oneOf":[`+strings.TrimSuffix(strings.Repeat(`{"$ref":""},`, 30), ",")+`]}`), specParameters())
	if len(errs) != 11 || errs[10].Error() != "spec.parameters.openAPIV3Schema: Forbidden: and 20 more errors" {
		t.Errorf("got %v", errs)
	}
}

// TestCompletedParametersAreComplete checks that completing parameters twice equals completing them
// once.
func TestCompletedParametersAreComplete(t *testing.T) {
	schema := parse(t, zones)
	rapid.Check(t, func(t *rapid.T) {
		given := map[string]any{"key": rapid.StringN(1, 8, -1).Draw(t, "key")}
		if rapid.Bool().Draw(t, "minutes set") {
			given["minutes"] = rapid.IntRange(-2, 9).Draw(t, "minutes")
		}
		if rapid.Bool().Draw(t, "windows set") {
			given["windows"] = rapid.SliceOf(rapid.SampledFrom([]any{
				map[string]any{}, map[string]any{"day": "Fri"}, map[string]any{"day": "Sat", "hours": map[string]any{"from": 1}}, nil,
			})).Draw(t, "windows")
		}
		raw, err := json.Marshal(given)
		if err != nil {
			t.Fatal(err)
		}
		once, errs := schema.Complete(raw, nil)
		if len(errs) > 0 {
			return
		}
		twice, errs := schema.Complete(once, nil)
		if len(errs) > 0 || string(once) != string(twice) {
			t.Fatalf("%s became %s, %v", once, twice, errs)
		}
	})
}
