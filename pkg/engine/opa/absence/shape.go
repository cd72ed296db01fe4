package absence

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
)

// shape is the part of a JSON schema that decides which values a parameter has.
type shape struct {
	Type       string
	Properties map[string]*shape
	Patterns   map[string]*shape `json:"patternProperties"`
	Items      *shape
	Required   []string
	MinLength  int

	// isRequired is true for a parameter that a rule must set, or that has a default.
	isRequired bool
}

// isMap reports whether such a value has keys that the schema does not name.
func (s *shape) isMap() bool { return s != nil && s.Patterns[""] != nil }

// mustBeSet reports whether a rule must set such a parameter.
func (s *shape) mustBeSet() bool { return s != nil && s.isRequired }

// hasValues reports whether all parts of such a value have known types.
func (s *shape) hasValues() bool {
	switch {
	case s == nil:
		return false
	case s.Type == "array":
		return s.Items.hasValues()
	case s.isMap():
		return s.Patterns[""].hasValues()
	case s.Type == "object":
		return len(s.Properties) > 0 && !slices.ContainsFunc(slices.Collect(maps.Values(s.Properties)), func(p *shape) bool { return !p.hasValues() })
	default:
		return true
	}
}

// scalars are the texts, numbers and booleans in a value: random ones, or the first ones.
type scalars struct {
	texts, numbers []string
	isTrue         bool
	random         *rand.Rand

	// isAll gives all of them to lists.
	isAll bool

	// prefersNumbers gives numbers to values whose type is not known.
	prefersNumbers bool
}

// maxMixed is the number of random values that are tried for a parameter.
const maxMixed = 24

// one returns one of these values.
func (s scalars) one(of []string) string {
	if s.random == nil {
		return of[0]
	}
	return of[s.random.IntN(len(of))]
}

// value returns a value with this shape. keys are the keys in its maps.
func (s *shape) value(from scalars, keys []string) any {
	switch s.Type {
	case "array":
		return s.items(from, keys)
	case "object":
		return s.members(from, keys)
	case "boolean":
		return from.isTrue && (from.random == nil || from.random.IntN(2) == 0)
	case "integer", "number":
		return json.Number(from.one(from.numbers))
	case "string":
		return from.one(from.texts)
	default:
		if from.prefersNumbers || from.random != nil && from.random.IntN(2) == 0 {
			return json.Number(from.one(from.numbers))
		}
		return from.one(from.texts)
	}
}

// items returns the items of a list: one, or a random number.
func (s *shape) items(from scalars, keys []string) []any {
	if !from.isAll {
		items := []any{s.Items.value(from, keys)}
		for from.random != nil && from.random.IntN(3) > 0 && len(items) < maxValues {
			items = append(items, s.Items.value(from, keys))
		}
		return items
	}
	var items []any
	for i := range max(len(from.texts), len(from.numbers)) {
		one := from
		one.isAll = false // a list in a list has one item
		if len(s.Items.Properties) == 0 {
			one.random = nil
		}
		one.texts, one.numbers = from.texts[i%len(from.texts):], from.numbers[i%len(from.numbers):]
		items = append(items, s.Items.value(one, keys))
	}
	return items
}

// maxBelow is the number of keys that a map in a map has.
const maxBelow = 4

// members returns the members of an object. A map has all keys.
func (s *shape) members(from scalars, keys []string) map[string]any {
	members, below := map[string]any{}, keys[:min(len(keys), maxBelow)]
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		members[name] = s.Properties[name].value(from, keys)
	}
	for _, key := range keys {
		if s.isMap() {
			members[key] = s.Patterns[""].value(from, below)
		}
	}
	return members
}

// json returns an encoded parameter value. Its maps have each text that a key may be.
func (s *search) json(of fact, from scalars, in facts) string {
	keys := s.texts(of, in)
	if from.random == nil || from.random.IntN(2) == 0 {
		keys = append([]string{unknown}, keys...)
	}
	encoded, err := json.Marshal(s.shapes[of].value(from, keys))
	if err != nil {
		return "null" // such values have an encoding
	}
	return string(encoded)
}

// schemaParameters returns the parameters with a schema, and their shapes. schema comes from parameters.Schema.JSONSchema; without one,
// all parameters of a module are set beside it.
func schemaParameters(schema json.RawMessage) ([]fact, map[fact]*shape, error) {
	shapes := map[fact]*shape{}
	if len(schema) == 0 {
		return nil, shapes, nil
	}
	root := &shape{}
	if err := json.Unmarshal(schema, root); err != nil {
		return nil, nil, fmt.Errorf("reading the schema of the parameters: %w", err)
	}
	var found []fact
	var collect func(object string, of *shape, isOptional bool)
	collect = func(object string, of *shape, isOptional bool) {
		for _, key := range slices.Sorted(maps.Keys(of.Properties)) {
			property := of.Properties[key]
			mayLack := isOptional || !slices.Contains(of.Required, key)
			one := fact{object, key, asJSON}
			if property.Type == "string" {
				one.encoding = asString
			}
			property.isRequired = !mayLack
			if property.hasValues() && len(property.Properties) == 0 {
				found = append(found, one)
				shapes[one] = property
			}
			collect(object+"."+key, property, mayLack)
		}
	}
	collect(parametersObject, root, false)
	return found, shapes, nil
}
