package parameters

import (
	"encoding/json"
	"fmt"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/runtime"
)

// Example returns parameters that have a value for each property, of its type: the default, the first value of the
// enumeration, or one that names the property. Keywords that restrict values, such as pattern, are not heeded.
func (s *Schema) Example() (json.RawMessage, error) {
	encoded, err := json.Marshal(example(s.structural, "value"))
	if err != nil {
		return nil, fmt.Errorf("encoding an example of parameters: %w", err)
	}
	return encoded, nil
}

func example(node *structuralschema.Structural, name string) any {
	switch {
	case node == nil:
		return name
	case node.Default.Object != nil:
		return runtime.DeepCopyJSONValue(node.Default.Object)
	case node.ValueValidation != nil && len(node.ValueValidation.Enum) > 0:
		return node.ValueValidation.Enum[0].Object
	}
	switch node.Type {
	case "object":
		made := map[string]any{}
		for property, schema := range node.Properties {
			made[property] = example(&schema, property)
		}
		return made
	case "array":
		return []any{example(node.Items, name)}
	case "integer", "number":
		return 1
	case "boolean":
		return true
	default:
		return name
	}
}
