package config_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// schema is the part of a JSON schema in a CRD that bounds values.
type schema struct {
	Type                 string            `json:"type"`
	Enum                 []any             `json:"enum"`
	Default              any               `json:"default"`
	MaxLength            *int              `json:"maxLength"`
	MaxItems             *int              `json:"maxItems"`
	MaxProperties        *int              `json:"maxProperties"`
	Properties           map[string]schema `json:"properties"`
	AdditionalProperties *schema           `json:"additionalProperties"`
	Items                *schema           `json:"items"`
	IntOrString          bool              `json:"x-kubernetes-int-or-string"`
	PreserveUnknown      bool              `json:"x-kubernetes-preserve-unknown-fields"`
}

// crdSchemas reads the schema of every generated CRD, by its plural.
func crdSchemas(t *testing.T) map[string]schema {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("crd", "bases", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("want CRDs, got %v, %v", files, err)
	}
	schemas := map[string]schema{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var crd struct {
			Spec struct {
				Names struct {
					Plural string `json:"plural"`
				} `json:"names"`
				Versions []struct {
					Schema struct {
						OpenAPIV3Schema schema `json:"openAPIV3Schema"`
					} `json:"schema"`
				} `json:"versions"`
			} `json:"spec"`
		}
		if err := yaml.Unmarshal(content, &crd); err != nil {
			t.Fatal(err)
		}
		schemas[crd.Spec.Names.Plural] = crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	}
	return schemas
}

// unbounded lists the fields below a schema whose size nothing bounds.
func unbounded(s schema, path string) []string {
	var found []string
	add := func(missing bool, bound string) {
		if missing {
			found = append(found, path+" has no "+bound)
		}
	}
	anything := s.Type == "" && !s.IntOrString
	add((s.Type == "string" || s.IntOrString || anything) && s.MaxLength == nil && len(s.Enum) == 0, "maxLength")
	add((s.Type == "array" || anything) && s.MaxItems == nil, "maxItems")
	add((s.AdditionalProperties != nil || s.PreserveUnknown) && s.MaxProperties == nil, "maxProperties")
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		found = append(found, unbounded(s.Properties[name], path+"."+name)...)
	}
	if s.AdditionalProperties != nil {
		found = append(found, unbounded(*s.AdditionalProperties, path+"{}")...)
	}
	if s.Items != nil {
		found = append(found, unbounded(*s.Items, path+"[]")...)
	}
	return found
}

func TestEveryFieldOfTheAPIIsBounded(t *testing.T) {
	for plural, crd := range crdSchemas(t) {
		for _, part := range []string{"spec", "status"} {
			if part == "status" && plural == "podoperationapprovals" {
				continue // an approval is a fact; rules have a status
			}
			if len(crd.Properties[part].Properties) == 0 {
				t.Errorf("%s has no %s", plural, part)
			}
			if found := unbounded(crd.Properties[part], part); len(found) > 0 {
				t.Errorf("%s:\n%s", plural, strings.Join(found, "\n"))
			}
		}
	}
}

func TestUnboundedFindsEachKind(t *testing.T) {
	one := 1
	s := schema{Type: "object", Properties: map[string]schema{
		"a": {Type: "string"}, "b": {Type: "array", MaxItems: &one, Items: &schema{Type: "string"}},
		"c": {Type: "object", AdditionalProperties: &schema{Type: "integer"}}, "d": {IntOrString: true},
		"e": {PreserveUnknown: true}, "f": {Type: "array", Items: &schema{Type: "boolean"}},
		"g": {Type: "string", Enum: []any{"x"}}, "h": {Type: "string", MaxLength: &one},
	}}
	want := ".a has no maxLength .b[] has no maxLength .c has no maxProperties .d has no maxLength " +
		".e has no maxLength .e has no maxItems .e has no maxProperties .f has no maxItems"
	if got := strings.Join(unbounded(s, ""), " "); got != want {
		t.Errorf("got %s", got)
	}
}

func TestDefaultsOfPollsAreThoseOfTheCode(t *testing.T) {
	webhook := crdSchemas(t)["podtransitionrules"].Properties["spec"].Properties["rules"].Items.Properties["webhook"]
	for path, poll := range map[string]schema{
		"webhook.poll":              webhook.Properties["poll"],
		"webhook.clientConfig.poll": webhook.Properties["clientConfig"].Properties["poll"],
	} {
		if got := poll.Properties["timeoutSeconds"].Default; got != float64(appsv1alpha1.DefaultPollTimeoutSeconds) {
			t.Errorf("%s.timeoutSeconds: default %v", path, got)
		}
		if got := poll.Properties["intervalSeconds"].Default; got != float64(appsv1alpha1.DefaultPollIntervalSeconds) {
			t.Errorf("%s.intervalSeconds: default %v", path, got)
		}
	}
}
