package parameters_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule/parameters"
)

func declared(schema string) *appsv1alpha1.PolicyParameters {
	return &appsv1alpha1.PolicyParameters{OpenAPIV3Schema: &apiextensionsv1.JSON{Raw: []byte(schema)}}
}

func specParameters() *field.Path { return field.NewPath("spec", "parameters") }

// lines returns errors below the path of the schema, one per line.
func lines(errs field.ErrorList) []string {
	var text []string
	for _, err := range errs {
		text = append(text, strings.TrimPrefix(err.Error(), "spec.parameters.openAPIV3Schema"))
	}
	return text
}

func TestSchemasThatCannotBeUsed(t *testing.T) {
	for name, tc := range map[string]struct {
		schema string
		want   []string
	}{
		"not JSON":                {`{`, []string{`: Invalid value: "": is not JSON: unexpected end of JSON input`}},
		"not an object":           {`[]`, []string{`: Invalid value: "": a schema is an object`}},
		"a root without a type":   {`{}`, []string{`.type: Required value: must not be empty at the root`}},
		"a root of another type":  {`{"type":"string"}`, []string{`.type: Invalid value: "string": must be object at the root`}},
		"a property without type": {`{"type":"object","properties":{"a":{}}}`, []string{`.properties[a].type: Required value: must not be empty for specified object fields`}},
		"a keyword of wrong type": {`{"type":7}`, []string{`: Invalid value: "": is not a schema: json: cannot unmarshal number into Go struct field JSONSchemaProps.type of type string`}},
		"properties of wrong type": {
			`{"type":"object","properties":[]}`, []string{`.properties: Invalid value: "": is an object of schemas`},
		},
		"a misspelt keyword, deep down": {
			`{"type":"object","properties":{"a":{"type":"array","items":{"type":"string","maxLenght":3}}}}`,
			[]string{`.properties[a].items.maxLenght: Forbidden: is not a keyword of OpenAPI v3 schemas`},
		},
		"a reference": {
			`{"type":"object","properties":{"a":{"$ref":"#/definitions/a"}},"definitions":{"a":{"type":"string"}}}`,
			[]string{
				`.definitions: Forbidden: write out what it refers to: references are not followed`,
				`.properties[a].$ref: Forbidden: write out what it refers to: references are not followed`,
			},
		},
		"a reference to elsewhere": {
			`{"type":"object","properties":{"a":{"anyOf":[{"$ref":"https://example.com/schema.json"}]}}}`,
			[]string{`.properties[a].anyOf[0].$ref: Forbidden: write out what it refers to: references are not followed`},
		},
		"CEL": {
			`{"type":"object","x-kubernetes-validations":[{"rule":"true"}]}`,
			[]string{`.x-kubernetes-validations: Forbidden: CEL is not evaluated here: check it in the module, which can deny with a message`},
		},
		"a pattern that is none": {
			`{"type":"object","properties":{"a":{"type":"string","pattern":"("}}}`,
			[]string{".properties[a].pattern: Invalid value: \"(\": must be a valid regular expression, but isn't: error parsing regexp: missing closing ): `(`"},
		},
		"a pattern that takes long to match": {
			`{"type":"object","properties":{"a":{"type":"string","pattern":"^([a-z]{0,30}x{0,30}yz){0,30}$"}}}`,
			[]string{`.properties[a].pattern: Forbidden: the patterns of the schema are too large: repeat less often, or check it in the module`},
		},
		"many patterns that take long together": {
			`{"type":"object","properties":{"a":{"type":"string","anyOf":[` + strings.Repeat(`{"pattern":"(ab{30}){30}"},`, 2) + `{"pattern":"(ab){900}"}]}}}`,
			[]string{`.properties[a].anyOf[2].pattern: Forbidden: the patterns of the schema are too large: repeat less often, or check it in the module`},
		},
		"properties beside additionalProperties": {
			`{"type":"object","properties":{"a":{"type":"object","properties":{},"additionalProperties":{"type":"string"}}}}`,
			[]string{`.properties[a].additionalProperties: Forbidden: cannot be used together with properties`},
		},
		"a default at the root": {
			`{"type":"object","default":{}}`, []string{`.default: Forbidden: set the defaults of the properties`},
		},
		"a default of another type": {
			`{"type":"object","properties":{"a":{"type":"integer","default":"3"}}}`,
			[]string{`.properties[a].default: Invalid value: "string": must be of type integer: "string"`},
		},
		"a default that another default makes invalid": {
			`{"type":"object","properties":{"a":{"type":"object","maxProperties":1,"default":{"b":1},"properties":{"b":{"type":"integer"},"c":{"type":"integer","default":1}}}}}`,
			[]string{`.properties[a].default: Invalid value: 2: should have at most 1 properties`},
		},
		"a default that the schema does not know": {
			`{"type":"object","properties":{"a":{"type":"object","default":{"b":1},"properties":{"c":{"type":"integer"}}}}}`,
			[]string{`.properties[a].default.b: Forbidden: the policy has no such parameter; it has c`},
		},
		"too many levels": {
			strings.Repeat(`{"type":"object","properties":{"a":`, 24) + `{"type":"string"}` + strings.Repeat(`}}`, 24),
			[]string{strings.Repeat(`.properties[a]`, 24) + `: Forbidden: schemas nest at most 24 deep`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			schema, errs := parameters.Parse(declared(tc.schema), specParameters())
			if schema != nil {
				t.Error("got a schema")
			}
			if diff := cmp.Diff(tc.want, lines(errs)); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSchemasAreBounded(t *testing.T) {
	schema := fmt.Sprintf(`{"type":"object","description":%q}`, strings.Repeat("x", parameters.MaxSchemaBytes))
	_, errs := parameters.Parse(declared(schema), specParameters())
	if len(errs) != 1 || errs[0].Type != field.ErrorTypeTooLong || errs[0].Field != "spec.parameters.openAPIV3Schema" {
		t.Errorf("got %v", errs)
	}
}

func TestAMissingSchemaIsRequiredByName(t *testing.T) {
	_, errs := parameters.Parse(&appsv1alpha1.PolicyParameters{}, specParameters())
	if len(errs) != 1 || errs[0].Type != field.ErrorTypeRequired {
		t.Errorf("got %v", errs)
	}
}
