// Command crdbounds adds to generated CRDs the bounds that markers cannot express: bounds of types
// of other projects. It rewrites the given files.
//
// metav1.LabelSelector has no bounds, and markers on a field reach its own schema only, not the
// schemas of the lists in it. A copy of the type would need a conversion at every use; a patch in
// config/crd would leave config/crd/bases, which tests and tools install, without bounds.
package main

import (
	"fmt"
	"os"

	"sigs.k8s.io/yaml"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// Bounds of strings that Kubernetes reads.
const (
	maxOperatorBytes = 16
	maxTimeBytes     = 64
	maxBoundBytes    = 4 // "100%"
	maxQuantityBytes = 32
)

func main() { os.Exit(run(os.Args[1:])) }

func run(files []string) int {
	for _, file := range files {
		if err := rewrite(file); err != nil {
			fmt.Fprintf(os.Stderr, "bounding %s: %v\n", file, err)
			return 1
		}
	}
	return 0
}

func rewrite(file string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	document := map[string]any{}
	if err := yaml.Unmarshal(content, &document); err != nil {
		return fmt.Errorf("decoding: %w", err)
	}
	bound(document)
	if content, err = yaml.Marshal(document); err != nil {
		return fmt.Errorf("encoding: %w", err)
	}
	return os.WriteFile(file, append([]byte("---\n"), content...), 0o644)
}

// bound walks a document and bounds every schema of a label selector, of a time and of a quantity in it.
func bound(node any) {
	switch node := node.(type) {
	case []any:
		for _, child := range node {
			bound(child)
		}
	case map[string]any:
		if properties, ok := node["properties"].(map[string]any); ok && isSelector(properties) {
			boundSelector(properties)
		}
		if node["x-kubernetes-preserve-unknown-fields"] == true && node["type"] == nil {
			boundUnion(node)
		}
		if node["type"] == "string" && node["format"] == "date-time" {
			node["maxLength"] = maxTimeBytes
		}
		if node["x-kubernetes-int-or-string"] == true && node["pattern"] != nil && node["maxLength"] == nil {
			node["maxLength"] = maxQuantityBytes
		}
		for _, child := range node {
			bound(child)
		}
	}
}

func isSelector(properties map[string]any) bool {
	_, labels := properties["matchLabels"]
	_, expressions := properties["matchExpressions"]
	return labels && expressions && len(properties) == 2
}

// boundSelector bounds the properties of a label selector. The length of a key of matchLabels is a
// CEL rule, since a schema cannot bound the keys of a map.
func boundSelector(properties map[string]any) {
	labels := object(properties, "matchLabels")
	labels["maxProperties"] = appsv1alpha1.MaxSelectorLabels
	object(labels, "additionalProperties")["maxLength"] = appsv1alpha1.MaxLabelValueBytes
	labels["x-kubernetes-validations"] = []any{map[string]any{
		"rule":    fmt.Sprintf("self.all(key, key.size() <= %d)", appsv1alpha1.MaxLabelKeyBytes),
		"message": fmt.Sprintf("a label key has at most %d characters", appsv1alpha1.MaxLabelKeyBytes),
	}}
	expressions := object(properties, "matchExpressions")
	expressions["maxItems"] = appsv1alpha1.MaxSelectorExpressions
	expression := object(object(expressions, "items"), "properties")
	object(expression, "key")["maxLength"] = appsv1alpha1.MaxLabelKeyBytes
	object(expression, "operator")["maxLength"] = maxOperatorBytes
	values := object(expression, "values")
	values["maxItems"] = appsv1alpha1.MaxSelectorValues
	object(values, "items")["maxLength"] = appsv1alpha1.MaxLabelValueBytes
}

// boundUnion bounds a field that is an availability bound, or an object with a bound as its
// value. A structural schema has no way to name both types, so each bound is for the type that
// it fits.
func boundUnion(schema map[string]any) {
	schema["maxLength"] = maxBoundBytes
	schema["maxItems"] = 0
	schema["maxProperties"] = 1
	schema["required"] = []any{"value"}
	schema["properties"] = map[string]any{"value": map[string]any{
		"anyOf":                      []any{map[string]any{"type": "integer"}, map[string]any{"type": "string"}},
		"maxLength":                  maxBoundBytes,
		"x-kubernetes-int-or-string": true,
	}}
}

// object returns the child of that name. A schema of another shape is a programming error, and
// shows as a panic in make manifests.
func object(parent map[string]any, name string) map[string]any {
	return parent[name].(map[string]any)
}
