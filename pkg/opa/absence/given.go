package absence

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/podops-dev/podops/pkg/opa"
	"github.com/podops-dev/podops/pkg/rule/spec"
)

// maxGiven bounds the given inputs that are used for a module, and maxPairs the inputs in which facts are removed in pairs.
const maxGiven, maxPairs = 100, 10

// FindIn is Find for inputs that are given, such as inputs from tests, in place of inputs that are made. A value with which a pod
// passes in a given input is a known value, too. Besides single facts it removes pairs: each fact that the module names, and
// then each other one.
func FindIn(ctx context.Context, engine *opa.Engine, custom spec.Custom, inputs []json.RawMessage) ([]Finding, error) {
	s, err := newSearch(ctx, engine, custom)
	if err != nil || s == nil {
		return nil, err
	}
	withheld, err := s.read(ctx, inputs)
	if err != nil {
		return nil, err
	}
	for i, one := range withheld {
		if err := s.try(ctx, one); err != nil {
			return nil, err
		}
		for _, removed := range s.facts {
			if _, present := one.optional[removed]; !present || removed.isField() || i >= maxPairs {
				continue
			}
			first := one.without(removed)
			if permits, err := s.permits(ctx, first); err != nil {
				return nil, err
			} else if !permits {
				if err := s.try(ctx, first); err != nil {
					return nil, err
				}
			}
		}
	}
	return s.findings(), nil
}

// read returns the facts of the inputs in which the pod waits, and keeps the values with which it passes.
func (s *search) read(ctx context.Context, inputs []json.RawMessage) (withheld []facts, err error) {
	seen := map[string]bool{}
	s.permitting = map[fact][]string{}
	for i, input := range inputs {
		if seen[string(input)] || len(seen) >= maxGiven {
			continue
		}
		seen[string(input)] = true
		one := &given{index: i, text: input}
		if one.optional, err = one.read(s.facts); err != nil {
			return nil, err
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

// given is an input that was not made here.
type given struct {
	index    int
	text     json.RawMessage
	optional map[fact]string
}

// read returns which of the facts the input has.
func (g *given) read(about []fact) (map[fact]string, error) {
	document, err := g.document()
	if err != nil {
		return nil, err
	}
	found := map[fact]string{}
	for _, one := range about {
		switch value := entries(document, one.object)[one.key].(type) {
		case string:
			found[one] = value
		case map[string]any: // a condition, or a quantity
			for _, field := range []string{"status", "text"} {
				if text, ok := value[field].(string); ok {
					found[one] = text
				}
			}
		}
	}
	return found, nil
}

// unknownDocument returns the value of a fact with unknown members, if it is a JSON object; a module that reads one fails with
// any other text.
func (g *given) unknownDocument(about fact) (value string, ok bool) {
	if g == nil {
		return "", false
	}
	members := map[string]any{}
	if err := json.Unmarshal([]byte(g.optional[about]), &members); err != nil || len(members) == 0 {
		return "", false
	}
	for name := range members {
		members[name] = unknown
	}
	encoded, err := json.Marshal(members)
	return string(encoded), err == nil
}

// input returns the input with other facts.
func (g *given) input(about []fact, optional map[fact]string) (json.RawMessage, error) {
	document, err := g.document()
	if err != nil {
		return nil, err
	}
	for _, one := range about {
		objects := entries(document, one.object)
		value, present := optional[one]
		switch {
		case objects == nil || present && value == g.optional[one]:
		case !present && !one.isField():
			delete(objects, one.key)
		case present && one.object == podConditions:
			objects[one.key] = conditions(map[string]string{one.key: value}, now)[one.key]
		case present && (one.object == podRequests || one.object == podLimits):
			objects[one.key] = quantities(map[string]string{one.key: value})[one.key]
		case present:
			objects[one.key] = value
		}
	}
	return json.Marshal(document)
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

func (g *given) document() (map[string]any, error) {
	document := map[string]any{}
	decoder := json.NewDecoder(strings.NewReader(string(g.text)))
	decoder.UseNumber()
	if err := decoder.Decode(&document); err != nil {
		return nil, fmt.Errorf("reading an input: %w", err)
	}
	return document, nil
}

// entries returns the object at a path, such as pod.labels or pod.resources[0].requests; nil without one.
func entries(document map[string]any, path string) map[string]any {
	for _, name := range strings.Split(path, ".") {
		name, first := strings.CutSuffix(name, "[0]")
		value := document[name]
		if items, ok := value.([]any); ok && first && len(items) > 0 {
			value = items[0]
		}
		below, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		document = below
	}
	return document
}
