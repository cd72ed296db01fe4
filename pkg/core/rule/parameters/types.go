package parameters

import (
	"encoding/json"
	"fmt"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"slices"
)

// noParameters replaces the members of an object without members. The type checker accepts
// any property in an object without properties; its message shows this name instead.
const noParameters = "(none)"

// JSONSchema returns the names and types of completed parameters as a JSON schema for the compiler
// of a module; parameters that are always there are required, strings that are never empty have
// minLength 1, and maps have the type of their values. All other keywords restrict values, not types. Where the type is not known, the schema
// has no type, which allows any use.
func (s *Schema) JSONSchema() (json.RawMessage, error) {
	document := s.types(s.structural)
	if len(s.structural.Properties) == 0 && !s.open() {
		document = map[string]any{
			"type": "object", "additionalProperties": false,
			"properties": map[string]any{noParameters: map[string]any{}},
		}
	}
	encoded, err := json.Marshal(document)
	if err != nil {
		return nil, fmt.Errorf("encoding the schema of parameters: %w", err)
	}
	return encoded, nil
}

func (s *Schema) types(node *structuralschema.Structural) map[string]any {
	if node == nil || node.Nullable {
		return map[string]any{} // the type checker does not know "this or null"
	}
	if node.XIntOrString {
		return map[string]any{"anyOf": []any{map[string]any{"type": "integer"}, map[string]any{"type": "string"}}}
	}
	switch node.Type {
	case "object":
		switch values := node.AdditionalProperties; {
		case !node.XPreserveUnknownFields && len(node.Properties) > 0:
			return s.properties(node)
		case values != nil && values.Structural != nil: // the type checker ignores patterns, and allows any use of a value
			return map[string]any{"type": "object", "patternProperties": map[string]any{"": s.types(values.Structural)}}
		default:
			return map[string]any{"type": "object"}
		}
	case "array":
		return map[string]any{"type": "array", "items": s.types(node.Items)}
	case "string":
		if _, errs := s.subschema(node).complete("", nil); len(errs) > 0 {
			return map[string]any{"type": "string", "minLength": 1}
		}
		return map[string]any{"type": "string"}
	case "integer", "number", "boolean":
		return map[string]any{"type": node.Type}
	default:
		return map[string]any{}
	}
}

// properties returns the types of an object with properties.
func (s *Schema) properties(node *structuralschema.Structural) map[string]any {
	types := map[string]any{}
	var required []string
	for _, name := range sorted(node.Properties) {
		property := node.Properties[name]
		types[name] = s.types(&property)
		if property.Default.Object != nil || node.ValueValidation != nil && slices.Contains(node.ValueValidation.Required, name) {
			required = append(required, name)
		}
	}
	document := map[string]any{"type": "object", "additionalProperties": false, "properties": types}
	if len(required) > 0 {
		document["required"] = required
	}
	return document
}
