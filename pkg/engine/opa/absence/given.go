package absence

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/engine/opa"
)

// maxGiven bounds the given inputs that are used for a module, and maxPairs the inputs in which facts are removed in pairs.
const maxGiven, maxPairs = 100, 10

// FindIn is Find for inputs that are given, such as inputs from tests, in place of inputs that are made. What an input does not have
// is that of a usual one. A value with which a pod passes in a given input is a known value, too. Besides single facts it removes
// pairs: each fact that the module names, and then each other one.
func FindIn(ctx context.Context, engine *opa.Engine, custom spec.Custom, inputs []json.RawMessage) (Found, error) {
	documents, at, err := decodeGiven(inputs)
	if err != nil {
		return Found{}, err
	}
	return find(ctx, engine, custom, documents, func(s *search, ctx context.Context) error { return s.withGiven(ctx, documents, at) })
}

// decodeGiven decodes the first inputs that differ, and returns their indices.
func decodeGiven(inputs []json.RawMessage) (documents []map[string]any, at []int, err error) {
	seen := map[string]bool{}
	for i, input := range inputs {
		if seen[string(input)] || len(seen) >= maxGiven {
			continue
		}
		seen[string(input)] = true
		document, err := decode(input)
		if err != nil {
			return nil, nil, err
		}
		documents, at = append(documents, document), append(at, i)
	}
	return documents, at, nil
}

// withGiven searches in documents, whose indices are given.
func (s *search) withGiven(ctx context.Context, documents []map[string]any, at []int) error {
	withheld, err := s.read(ctx, documents, at)
	if err != nil {
		return err
	}
	for _, one := range withheld {
		if err := s.try(ctx, one); err != nil {
			return err
		}
	}
	// The inputs with the most facts have the most pairs.
	slices.SortStableFunc(withheld, func(a, b facts) int { return len(b.optional) - len(a.optional) })
	for _, one := range withheld[:min(len(withheld), maxPairs)] {
		if err := s.tryPairs(ctx, one); err != nil {
			return err
		}
	}
	return nil
}

// tryPairs removes each fact from an input, and then each other one if the pod still waits.
func (s *search) tryPairs(ctx context.Context, from facts) error {
	for _, removed := range s.facts {
		if _, present := from.optional[removed]; !present || removed.isField() {
			continue
		}
		first := from.without(removed)
		permits, err := s.permits(ctx, first)
		if err != nil {
			return err
		}
		if permits {
			continue
		}
		if err := s.try(ctx, first); err != nil {
			return err
		}
	}
	return nil
}

// read returns the facts of the inputs in which the pod waits, and keeps the values with which it passes.
func (s *search) read(ctx context.Context, documents []map[string]any, at []int) (withheld []facts, err error) {
	s.permitting = map[fact][]string{}
	usual, err := s.document(usual())
	if err != nil {
		return nil, err
	}
	for i, document := range documents {
		whole := completed(document, usual)
		text, err := json.Marshal(whole)
		if err != nil {
			return nil, fmt.Errorf("completing an input: %w", err)
		}
		one := &given{index: at[i], text: text, optional: read(whole, s.facts), now: monday}
		if number, ok := whole["now"].(json.Number); ok {
			if nanoseconds, err := number.Int64(); err == nil {
				one.now = nanoseconds
			}
		}
		from := facts{optional: one.optional, given: one}
		permits, err := s.permits(ctx, from)
		if err != nil {
			return nil, err
		}
		if !permits {
			withheld = append(withheld, from)
			continue
		}
		for about, value := range from.optional {
			if !slices.Contains(s.permitting[about], value) && len(s.permitting[about]) < maxValues {
				s.permitting[about] = append(s.permitting[about], value)
			}
		}
	}
	return withheld, nil
}

// maxKeys bounds the keys that are taken from inputs.
const maxKeys = 32

// inputKeys returns the keys of the optional facts in inputs, and the strings in their parameters.
func inputKeys(documents []map[string]any) []string {
	found := map[string]bool{}
	for _, document := range documents {
		for _, object := range objects() {
			for key := range entries(document, object) {
				found[key] = true
			}
		}
		for _, text := range stringsIn(document["parameters"]) {
			found[text] = true
		}
	}
	keys := slices.Sorted(maps.Keys(found))
	return keys[:min(len(keys), maxKeys)]
}

// completed returns an input document with the fields of a usual one that it does not have.
func completed(document, usual map[string]any) map[string]any {
	others, _ := document["pods"].([]any)
	templates := maps.Clone(usual)
	templates["pods"] = []any{usual["pod"]}
	whole, _ := withFields(document, templates).(map[string]any)
	if len(others) == 0 {
		whole["pods"] = []any{}
	}
	return whole
}

// withFields returns a value with the fields that only another has. Each list item is completed from the first item in the other list.
func withFields(value, other any) any {
	switch other := other.(type) {
	case map[string]any:
		fields, ok := value.(map[string]any)
		if !ok {
			return value
		}
		whole := maps.Clone(other)
		for name, field := range fields {
			whole[name] = withFields(field, other[name])
		}
		return whole
	case []any:
		items, ok := value.([]any)
		if !ok || len(other) == 0 {
			return value
		}
		whole := []any{}
		for _, item := range items {
			whole = append(whole, withFields(item, other[0]))
		}
		return whole
	default:
		return value
	}
}

// given is an input that was not made here.
type given struct {
	index    int
	text     json.RawMessage
	optional map[fact]string

	// now is its time, in nanoseconds.
	now int64
}

// removed returns the optional facts that the input has, and the facts do not have.
func (g *given) removed(from facts) []string {
	var found []string
	for _, one := range slices.SortedFunc(maps.Keys(g.optional), func(a, b fact) int { return strings.Compare(a.String(), b.String()) }) {
		if _, present := from.optional[one]; !present {
			found = append(found, "no "+one.String())
		}
	}
	return found
}
