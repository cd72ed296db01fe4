package parameters_test

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	"github.com/podops-dev/podops/pkg/core/rule/parameters"
)

// document draws any JSON, with keywords of schemas among the names.
func document(depth int) *rapid.Generator[any] {
	name := rapid.SampledFrom([]string{
		"type", "properties", "items", "additionalProperties", "required", "default", "enum", "anyOf", "not", "pattern",
		"minimum", "maxLength", "multipleOf", "format", "nullable", "x-kubernetes-int-or-string", "x-kubernetes-list-type",
		"x-kubernetes-list-map-keys", "x-kubernetes-preserve-unknown-fields", "metadata", "a", "b",
	})
	leaf := rapid.OneOf(
		rapid.SampledFrom([]any{nil, true, false, "object", "array", "string", "integer", "map", "set", "a", "(", "date-time", 0, -1, 1.5, 1e300}),
	)
	if depth == 0 {
		return leaf
	}
	return rapid.OneOf(leaf,
		rapid.Map(rapid.SliceOfN(document(depth-1), 0, 3), func(list []any) any { return list }),
		rapid.Map(rapid.MapOfN(name, document(depth-1), 0, 4), func(object map[string]any) any { return object }),
	)
}

// schema draws a document that is probably a schema of objects.
func schema(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		node := map[string]any{"type": "string"}
		if depth > 0 {
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				node = map[string]any{"type": "array", "items": schema(depth-1).Draw(t, "items")}
			case 1:
				node = map[string]any{"type": "object", "additionalProperties": schema(depth-1).Draw(t, "values")}
			default:
				node = map[string]any{"type": "object", "properties": map[string]any{
					"a": schema(depth-1).Draw(t, "a"), "b": schema(depth-1).Draw(t, "b"),
				}}
			}
		}
		if rapid.IntRange(0, 9).Draw(t, "spoilt") == 0 {
			odd := rapid.MapOfN(rapid.SampledFrom([]string{
				"default", "nullable", "enum", "required", "x-kubernetes-list-type", "x-kubernetes-list-map-keys",
				"x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields", "anyOf", "not", "multipleOf",
			}), document(2), 1, 2).Draw(t, "odd")
			for key, value := range odd {
				node[key] = value
			}
		}
		return node
	})
}

// valueOf draws a value that mostly fits a schema.
func valueOf(t *rapid.T, node any) any {
	fields, ok := node.(map[string]any)
	if !ok || rapid.IntRange(0, 9).Draw(t, "unfit") == 0 {
		return document(2).Draw(t, "value")
	}
	switch fields["type"] {
	case "array":
		list := make([]any, rapid.IntRange(0, 3).Draw(t, "length"))
		for i := range list {
			list[i] = valueOf(t, fields["items"])
		}
		return list
	case "object":
		object := map[string]any{}
		members, _ := fields["properties"].(map[string]any)
		for _, name := range []string{"a", "b"} {
			switch {
			case !rapid.Bool().Draw(t, "given"):
			case members[name] != nil:
				object[name] = valueOf(t, members[name])
			case fields["additionalProperties"] != nil:
				object[name] = valueOf(t, fields["additionalProperties"])
			}
		}
		return object
	default:
		return "x"
	}
}

// TestNothingMakesItPanic draws the input of users who may write policies and rules.
func TestNothingMakesItPanic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		root := map[string]any{"type": "object", "properties": map[string]any{
			"a": schema(3).Draw(t, "a"),
		}}
		if rapid.IntRange(0, 3).Draw(t, "any b") == 0 {
			root["properties"].(map[string]any)["b"] = document(3).Draw(t, "b")
		}
		raw, err := json.Marshal(root)
		if err != nil {
			t.Fatal(err)
		}
		parsed, errs := parameters.Parse(declared(string(raw)), specParameters())
		if len(errs) > 0 {
			if parsed != nil {
				t.Fatal("a schema together with errors")
			}
			return
		}
		given, err := json.Marshal(valueOf(t, root))
		if err != nil {
			t.Fatal(err)
		}
		completed, errs := parsed.Complete(given, regoParameters())
		if len(errs) == 0 && !json.Valid(completed) {
			t.Fatalf("%s became %s", given, completed)
		}
		if _, err := parsed.JSONSchema(); err != nil {
			t.Fatal(err)
		}
	})
}
