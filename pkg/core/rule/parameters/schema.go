package parameters

import (
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// Schema is a parsed schema of parameters. It is immutable and safe for concurrent use. Only Parse
// returns one.
type Schema struct {
	structural *structuralschema.Structural
	validator  *validate.SchemaValidator

	// nodes is the number of subschemas.
	nodes int
}

// Parse parses the schema of a PodTransitionPolicy. nil is the schema of a policy without
// parameters. path is the path of declared ("spec.parameters"); errors have the keyword at fault
// below it. With errors there is no Schema.
func Parse(declared *appsv1alpha1.PolicyParameters, path *field.Path) (*Schema, field.ErrorList) {
	path = path.Child("openAPIV3Schema")
	if declared == nil {
		return newSchema(&structuralschema.Structural{Generic: structuralschema.Generic{Type: "object"}}, 1), nil
	}
	if declared.OpenAPIV3Schema == nil {
		return nil, field.ErrorList{field.Required(path, "leave out spec.parameters when the policy takes none")}
	}
	raw := declared.OpenAPIV3Schema.Raw
	if len(raw) > MaxSchemaBytes {
		return nil, field.ErrorList{field.TooLong(path, "", MaxSchemaBytes)}
	}
	var document any
	if err := json.Unmarshal(raw, &document); err != nil {
		return nil, field.ErrorList{field.Invalid(path, "", fmt.Sprintf("is not JSON: %v", err))}
	}
	walk := keywordWalk{}
	if walk.schema(document, path, 1); len(walk.errs) > 0 {
		return nil, first(walk.errs, path)
	}
	structural, errs := parseStructural(raw, path)
	if len(errs) > 0 {
		return nil, first(errs, path)
	}
	schema := newSchema(structural, walk.nodes)
	if errs := schema.checkDefaults(structural, path); len(errs) > 0 {
		return nil, first(errs, path)
	}
	return schema, nil
}

// first returns the first errors, and the number of the others.
func first(errs field.ErrorList, path *field.Path) field.ErrorList {
	if more := len(errs) - maxErrors; more > 0 {
		return append(errs[:maxErrors:maxErrors], field.Forbidden(path, fmt.Sprintf("and %d more errors", more)))
	}
	return errs
}

func newSchema(structural *structuralschema.Structural, nodes int) *Schema {
	return &Schema{structural: structural, validator: newValidator(structural), nodes: nodes}
}

func newValidator(structural *structuralschema.Structural) *validate.SchemaValidator {
	openAPI := structural.ToKubeOpenAPI()
	typeIntOrString(openAPI)
	return validate.NewSchemaValidator(openAPI, nil, "", strfmt.Default)
}

// typeIntOrString sets the types of schemas with x-kubernetes-int-or-string, which the validator
// does not support.
func typeIntOrString(schema *spec.Schema) {
	if schema == nil {
		return
	}
	if set, _ := schema.Extensions.GetBool("x-kubernetes-int-or-string"); set {
		schema.Type = spec.StringOrArray{"integer", "string"}
	}
	for name, property := range schema.Properties {
		typeIntOrString(&property)
		schema.Properties[name] = property
	}
	if schema.Items != nil {
		typeIntOrString(schema.Items.Schema)
	}
	if schema.AdditionalProperties != nil {
		typeIntOrString(schema.AdditionalProperties.Schema)
	}
}

// parseStructural checks the rules of structural schemas with the library that CRDs are checked with.
func parseStructural(raw []byte, path *field.Path) (*structuralschema.Structural, field.ErrorList) {
	var external apiextensionsv1.JSONSchemaProps
	if err := json.Unmarshal(raw, &external); err != nil {
		return nil, field.ErrorList{field.Invalid(path, "", fmt.Sprintf("is not a schema: %v", err))}
	}
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&external, &internal, nil); err != nil {
		return nil, field.ErrorList{field.Invalid(path, "", fmt.Sprintf("is not a schema: %v", err))}
	}
	structural, err := structuralschema.NewStructural(&internal)
	if err != nil {
		return nil, field.ErrorList{field.Invalid(path, "", err.Error())}
	}
	// ValidateStructural modifies the metadata of its argument.
	if errs := structuralschema.ValidateStructural(path, structural.DeepCopy()); len(errs) > 0 {
		return nil, errs
	}
	return structural, nil
}

// subschema returns the schema of a node.
func (s *Schema) subschema(node *structuralschema.Structural) *Schema {
	return &Schema{structural: node, validator: newValidator(node), nodes: s.nodes}
}

// checkDefaults validates every default against the schema at its place, so that filling it in
// never makes parameters invalid.
func (s *Schema) checkDefaults(node *structuralschema.Structural, path *field.Path) field.ErrorList {
	if node == nil {
		return nil
	}
	var errs field.ErrorList
	if node.Default.Object != nil {
		_, found := s.subschema(node).complete(node.Default.Object, path.Child("default"))
		errs = append(errs, found...)
	}
	for _, name := range sorted(node.Properties) {
		property := node.Properties[name]
		errs = append(errs, s.checkDefaults(&property, path.Child("properties").Key(name))...)
	}
	errs = append(errs, s.checkDefaults(node.Items, path.Child("items"))...)
	if node.AdditionalProperties != nil {
		errs = append(errs, s.checkDefaults(node.AdditionalProperties.Structural, path.Child("additionalProperties"))...)
	}
	return errs
}
