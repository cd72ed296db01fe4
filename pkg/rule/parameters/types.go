package parameters

import (
	"encoding/json"
	"fmt"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
)

// noParameters replaces the members of an object without members. The type checker accepts
// any property in an object without properties; its message shows this name instead.
const noParameters = "(none)"

// JSONSchema returns the names and types of completed parameters as a JSON schema for the compiler
// of a module. All other keywords restrict values, not types. Where the type is not known, the
// schema has no type, which allows any use.
func (s *Schema) JSONSchema() (json.RawMessage, error) {
	document := typeOf(s.structural)
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

func typeOf(node *structuralschema.Structural) map[string]any {
	if node == nil || node.Nullable {
		return map[string]any{} // the type checker does not know "this or null"
	}
	if node.XIntOrString {
		return map[string]any{"anyOf": []any{map[string]any{"type": "integer"}, map[string]any{"type": "string"}}}
	}
	switch node.Type {
	case "object":
		if node.XPreserveUnknownFields || len(node.Properties) == 0 {
			return map[string]any{"type": "object"}
		}
		properties := map[string]any{}
		for name, property := range node.Properties {
			properties[name] = typeOf(&property)
		}
		return map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
	case "array":
		return map[string]any{"type": "array", "items": typeOf(node.Items)}
	case "string", "integer", "number", "boolean":
		return map[string]any{"type": node.Type}
	default:
		return map[string]any{}
	}
}
