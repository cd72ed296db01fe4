package absence

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/podops-dev/podops/pkg/opa/vet"
)

// values are the values that optional facts are given.
type values struct {
	// known are the values that the module names, alone and as the builtins read them that the module calls.
	known []string

	// unknown are groups of values that no module names: text, and values as the builtins read them. A pod waits with
	// an unknown value if it waits with all of one group.
	unknown [][]string

	// malformed is a value that these builtins cannot read, without an error; empty without such builtins.
	malformed string

	// parsesTime is true for a module that parses points in time.
	parsesTime bool
}

// newValues returns the values for a module with these strings.
func newValues(constants vet.Constants, source string, named []string) values {
	named = distinct(named, examples(named))
	named = named[:min(len(named), maxValues)]
	made := values{known: named, unknown: [][]string{{unknown}}, parsesTime: strings.Contains(source, "time.parse_rfc3339_ns(")}
	if strings.Contains(source, "json.unmarshal(") {
		made.known = append(slices.Clip(made.known), document(constants.Reads, true), document(constants.Reads, false))
		for _, value := range named {
			made.known = append(made.known, document(constants.Reads, value), list(value))
		}
		made.unknown, made.malformed = append(made.unknown, []string{document(constants.Reads, unknown)}, []string{list(unknown)}), "[]"
	}
	for _, separator := range named {
		if !strings.Contains(source, "split") || len(separator) != 1 || strings.ContainsFunc(separator, isLetterOrDigit) {
			continue
		}
		thrice := func(value string) string { return strings.Join([]string{value, value, value}, separator) }
		for _, value := range named {
			made.known = append(made.known, thrice(value))
		}
		made.unknown, made.malformed = append(made.unknown, []string{thrice(unknown)}), "malformed"
		break
	}
	if strings.Contains(source, "to_number(") || strings.Contains(source, "units.parse") {
		made.known = append(made.known, constants.Numbers[:min(len(constants.Numbers), maxValues)]...)
		made.unknown = append(made.unknown, []string{"0.5", "987654321"})
	}
	if strings.Contains(source, "semver.") {
		made.unknown = append(made.unknown, []string{"0.0.1-alpha", "999.0.0"})
	}
	return made
}

func isLetterOrDigit(char rune) bool { return unicode.IsLetter(char) || unicode.IsDigit(char) }

// document returns a JSON document in which the members that a module may read have a value.
func document(module vet.Reads, value any) string {
	members := map[string]any{}
	for _, read := range module.Others {
		object := members
		for i, key := range read.Path {
			below, isObject := object[key].(map[string]any)
			switch {
			case i == len(read.Path)-1 && object[key] == nil:
				object[key] = value
			case !isObject:
				below = map[string]any{}
				object[key] = below
			}
			object = below
		}
	}
	encoded, err := json.Marshal(members)
	if err != nil {
		return "{}" // such values have an encoding
	}
	return string(encoded)
}

// Values of parameters that are numbers or points in time. most is more than a point in time, in nanoseconds.
const (
	least, most     = "0", "9000000000000000000"
	earliest, later = "1970-01-01T00:00:00Z", "2199-01-01T00:00:00Z"
)

// unknown returns groups of fact values that no module names.
func (s *search) unknown(of fact, in facts) [][]string {
	switch of.encoding { //nolint:exhaustive // Others have the values of strings.
	case asNumber:
		return [][]string{{least}, {most}}
	case asList:
		return [][]string{{list(unknown)}}
	case asMap:
		return [][]string{{s.mapping(unknown, in)}}
	case asString:
		if of.isParameter() && s.values.parsesTime {
			return append(slices.Clone(s.values.unknown), []string{earliest}, []string{later})
		}
	}
	return s.values.unknown
}

// known returns fact values with which a pod may pass. A parameter may have to be a name or another fact in the input.
func (s *search) known(of fact, in facts) []string {
	found := slices.Clone(s.permitting[of])
	if of.encoding == asNumber {
		return append(found, least, "1", most)
	}
	texts := s.values.known
	if of.isParameter() {
		texts = slices.Concat(texts, s.names(in), slices.Sorted(maps.Values(in.optional)))
		if s.values.parsesTime {
			texts = append(texts, earliest, later)
		}
	}
	for _, text := range texts {
		switch of.encoding { //nolint:exhaustive // Others have the values of strings.
		case asList:
			text = list(text)
		case asMap:
			text = s.mapping(text, in)
		}
		found = append(found, text)
	}
	return found
}

// mapping returns a map in which each text that a key may have is a key with the value.
func (s *search) mapping(value string, in facts) string {
	entries := map[string]string{unknown: value}
	for _, key := range slices.Concat(s.values.known, s.names(in), slices.Sorted(maps.Values(in.optional))) {
		entries[key] = value
	}
	encoded, err := json.Marshal(entries)
	if err != nil {
		return "{}" // strings have an encoding
	}
	return string(encoded)
}

// names returns the names in an input.
func (s *search) names(in facts) []string {
	if in.given == nil {
		return []string{"web-0", "shop", "node-1", "web"}
	}
	document, err := decode(in.given.text)
	if err != nil {
		return nil
	}
	var found []string
	for _, path := range []string{"pod.name", "pod.namespace", "pod.node", "pod.owner.name"} {
		at := strings.LastIndex(path, ".")
		if name, ok := entries(document, path[:at])[path[at+1:]].(string); ok {
			found = append(found, name)
		}
	}
	return found
}

func list(value string) string { return fmt.Sprintf("[%q]", value) }

// optionalParameters returns the parameters that a rule need not set, and the strings among them that are never empty. schema comes
// from parameters.Schema.JSONSchema; without one, all parameters of a module are set beside it.
func optionalParameters(schema json.RawMessage) (found []fact, neverEmpty map[fact]bool, err error) {
	neverEmpty = map[fact]bool{}
	if len(schema) == 0 {
		return nil, neverEmpty, nil
	}
	type node struct {
		Type       string
		Properties map[string]*node
		Patterns   map[string]*node `json:"patternProperties"`
		Items      *node
		Required   []string
		MinLength  int
	}
	root := node{}
	if err := json.Unmarshal(schema, &root); err != nil {
		return nil, nil, fmt.Errorf("reading the schema of the parameters: %w", err)
	}
	encodings := map[string]encoding{"string": asString, "integer": asNumber, "number": asNumber}
	var collect func(object string, of *node, isOptional bool)
	collect = func(object string, of *node, isOptional bool) {
		for _, key := range slices.Sorted(maps.Keys(of.Properties)) {
			property := of.Properties[key]
			encoded, ok := encodings[property.Type]
			if property.Type == "array" && property.Items != nil && property.Items.Type == "string" {
				encoded, ok = asList, true
			}
			if values := property.Patterns[""]; values != nil && values.Type == "string" {
				encoded, ok = asMap, true
			}
			mayLack := isOptional || !slices.Contains(of.Required, key)
			if one := (fact{object, key, encoded}); ok && mayLack {
				found = append(found, one)
				neverEmpty[one] = property.MinLength > 0
			}
			collect(object+"."+key, property, mayLack)
		}
	}
	collect(parametersObject, &root, false)
	return found, neverEmpty, nil
}

// stringsBelow returns the strings in parameters, without their names; none without parameters.
func stringsBelow(document json.RawMessage) ([]string, error) {
	if len(document) == 0 {
		return nil, nil
	}
	var parameters map[string]any
	if err := json.Unmarshal(document, &parameters); err != nil {
		return nil, fmt.Errorf("reading the parameters: %w", err)
	}
	return stringsIn(parameters), nil
}

// stringsIn returns the strings in parameters, without their names.
func stringsIn(parameters any) []string {
	var found []string
	var collect func(value any)
	collect = func(value any) {
		switch value := value.(type) {
		case string:
			found = append(found, value)
		case []any:
			for _, item := range value {
				collect(item)
			}
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(value)) {
				found = append(found, key)
				collect(value[key])
			}
		}
	}
	if named, ok := parameters.(map[string]any); ok {
		for _, name := range slices.Sorted(maps.Keys(named)) {
			collect(named[name])
		}
	}
	return found
}
