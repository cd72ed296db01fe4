package parameters

import (
	"fmt"
	"maps"
	"regexp/syntax"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// keywordWalk visits every subschema of a document. The library that parses schemas drops unknown
// keywords, so a misspelt keyword would check nothing.
type keywordWalk struct {
	errs  field.ErrorList
	nodes int

	// patterns is the size of the patterns so far.
	patterns int
}

// holds is the kind of a keyword's value.
type holds int

const (
	value holds = iota
	oneSchema
	schemaOrBool
	listOfSchemas
	mapOfSchemas
)

// keywords returns the supported keywords. All others of OpenAPI are rejected.
func keywords() map[string]holds {
	return map[string]holds{
		"type": value, "title": value, "description": value, "nullable": value, "default": value,
		"example": value, "externalDocs": value, "format": value, "enum": value, "pattern": value, "required": value,
		"maximum": value, "exclusiveMaximum": value, "minimum": value, "exclusiveMinimum": value, "multipleOf": value,
		"maxLength": value, "minLength": value, "maxItems": value, "minItems": value,
		"maxProperties": value, "minProperties": value,

		"properties": mapOfSchemas, "items": oneSchema, "additionalProperties": schemaOrBool,
		"allOf": listOfSchemas, "anyOf": listOfSchemas, "oneOf": listOfSchemas, "not": oneSchema,

		"x-kubernetes-preserve-unknown-fields": value, "x-kubernetes-int-or-string": value,
		"x-kubernetes-list-type": value, "x-kubernetes-list-map-keys": value, "x-kubernetes-map-type": value,
	}
}

// unsupported returns keywords that other schemas support, with an alternative.
func unsupported() map[string]string {
	const written = "write out what it refers to: references are not followed"
	return map[string]string{
		"$ref":                           written,
		"$schema":                        "leave it out: it is OpenAPI v3",
		"id":                             "leave it out: nothing refers to it",
		"definitions":                    written,
		"patternProperties":              "use additionalProperties",
		"dependencies":                   "use anyOf with required",
		"additionalItems":                "use items",
		"uniqueItems":                    "use x-kubernetes-list-type: set",
		"x-kubernetes-validations":       "CEL is not evaluated here: check it in the module, which can deny with a message",
		"x-kubernetes-embedded-resource": "parameters hold values, not objects of Kubernetes",
	}
}

// schema visits one subschema; depth of the root is 1.
func (w *keywordWalk) schema(document any, path *field.Path, depth int) {
	w.nodes++
	if depth > maxDepth {
		w.errs = append(w.errs, field.Forbidden(path, fmt.Sprintf("schemas nest at most %d deep", maxDepth)))
		return
	}
	node, ok := document.(map[string]any)
	if !ok {
		w.errs = append(w.errs, field.Invalid(path, "", "a schema is an object"))
		return
	}
	known, alternatives := keywords(), unsupported()
	for _, keyword := range sorted(node) {
		if kind, ok := known[keyword]; ok {
			w.keyword(kind, node[keyword], path.Child(keyword), depth)
			continue
		}
		reason := "is not a keyword of OpenAPI v3 schemas"
		if alternative, ok := alternatives[keyword]; ok {
			reason = alternative
		}
		w.errs = append(w.errs, field.Forbidden(path.Child(keyword), reason))
	}
	w.pattern(node["pattern"], path.Child("pattern"))
	if node["properties"] != nil && node["additionalProperties"] != nil {
		w.errs = append(w.errs, field.Forbidden(path.Child("additionalProperties"), "cannot be used together with properties"))
	}
	if depth == 1 && node["default"] != nil {
		w.errs = append(w.errs, field.Forbidden(path.Child("default"), "set the defaults of the properties"))
	}
}

func (w *keywordWalk) keyword(kind holds, content any, path *field.Path, depth int) {
	switch kind {
	case value:
	case oneSchema:
		w.schema(content, path, depth+1)
	case schemaOrBool:
		if _, ok := content.(bool); !ok {
			w.schema(content, path, depth+1)
		}
	case listOfSchemas:
		list, ok := content.([]any)
		if !ok {
			w.errs = append(w.errs, field.Invalid(path, "", "is a list of schemas"))
		}
		for i, one := range list {
			w.schema(one, path.Index(i), depth+1)
		}
	case mapOfSchemas:
		named, ok := content.(map[string]any)
		if !ok {
			w.errs = append(w.errs, field.Invalid(path, "", "is an object of schemas"))
		}
		for _, name := range sorted(named) {
			w.schema(named[name], path.Key(name), depth+1)
		}
	}
}

// pattern adds the size of a pattern. An invalid regular expression is rejected elsewhere.
func (w *keywordWalk) pattern(content any, path *field.Path) {
	text, ok := content.(string)
	if !ok {
		return
	}
	expression, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return
	}
	if w.patterns += patternSize(expression); w.patterns > maxPatterns {
		w.errs = append(w.errs, field.Forbidden(path,
			"the patterns of the schema are too large: repeat less often, or check it in the module"))
	}
}

// patternSize returns roughly the number of instructions that an expression compiles to, at most a
// little more than maxPatterns. It does not compile the expression: repeats multiply.
func patternSize(expression *syntax.Regexp) int {
	size := 1 + len(expression.Rune)/2 // literals and ranges
	for _, part := range expression.Sub {
		size += patternSize(part)
	}
	if expression.Op == syntax.OpRepeat {
		size *= max(expression.Min, expression.Max, 1)
	}
	return min(size, maxPatterns+1)
}

// sorted returns the keys of a map in the order of reports.
func sorted[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }
