package absence

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/podops-dev/podops/pkg/engine/opa/vet"
)

// values are the values that optional facts are given.
type values struct {
	// known are the values that the module names, alone and as the builtins read them that the module calls.
	known []string

	// named are the values as the module names them.
	named []string

	// unknown are groups of values that no module names: text, and values as the builtins read them. A pod waits with
	// an unknown value if it waits with all of one group.
	unknown [][]string

	// malformed is a value that these builtins cannot read, without an error; empty without such builtins.
	malformed string

	// orders are how the module compares values by order.
	orders []order

	// ordersTexts is true for a module that compares texts by order.
	ordersTexts bool

	// numbers are the first numbers in the module.
	numbers []string

	// zones are time zones, for a module that reads times.
	zones []string
}

// newValues returns the values for a module with these strings.
func newValues(constants vet.Constants, source string, named []string) values {
	named = distinct(named, examples(named))
	named = named[:min(len(named), maxValues)]
	made := values{
		named: named, known: named, unknown: [][]string{{unknown}}, orders: ordersIn(constants.Reads, source, named),
		ordersTexts: constants.Reads.OrdersTexts, numbers: constants.Numbers[:min(len(constants.Numbers), maxValues)],
	}
	whole := made.orders
	if strings.Contains(source, "json.unmarshal(") {
		made.known = append(slices.Clip(made.known), document(constants.Reads, true), document(constants.Reads, false))
		for _, value := range named {
			made.known = append(made.known, document(constants.Reads, value), list(value))
		}
		made.unknown, made.malformed = append(made.unknown, []string{document(constants.Reads, unknown)}, []string{list(unknown)}), "[]"
		made.orders = append(made.orders, inDocuments(whole, constants.Reads)...)
	}
	for _, separator := range named {
		if !strings.Contains(source, "split") || len(separator) != 1 || strings.ContainsFunc(separator, isLetterOrDigit) {
			continue
		}
		thrice := func(value string) string { return strings.Join([]string{value, value, value}, separator) }
		twice := func(value string) string { return value + separator + value }
		for _, value := range named {
			made.known = append(made.known, thrice(value), twice(value))
		}
		made.unknown, made.malformed = append(made.unknown, []string{thrice(unknown)}, []string{twice(unknown)}), "malformed"
		for _, one := range whole {
			made.orders = append(made.orders, one.with(thrice))
		}
		break
	}
	if strings.Contains(source, "time.weekday(") {
		for day := time.Sunday; day <= time.Saturday; day++ {
			made.known = append(made.known, day.String())
		}
	}
	if strings.Contains(source, "to_number(") || strings.Contains(source, "units.parse") {
		made.known = append(made.known, made.numbers...)
	}
	if strings.Contains(source, "time.") {
		made.zones = []string{"UTC", "Asia/Tokyo", "America/Los_Angeles"}
	}
	for _, one := range made.orders {
		made.unknown = append(made.unknown, one.least, []string{one.least[1], one.greatest})
		made.known = append(slices.Clip(made.known), one.greatest)
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
			case i == len(read.Path)-1:
				if object[key] == nil {
					object[key] = value
				}
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

// unknown returns groups of fact values that no module names. What a parameter counts as if it is not set is not known: a greatest value
// alone is a group, too.
func (s *search) unknown(of fact, in facts) [][]string {
	groups := s.values.unknown
	switch {
	case of.encoding == asTime:
		return [][]string{{in.before(time.Second)}}
	case of.encoding == asQuantity:
		return append(slices.Clip(groups), []string{least, "0.001"})
	case of.encoding == asJSON:
		groups = nil
		for _, texts := range s.extremes() {
			for _, number := range []string{least, most} {
				groups = append(groups,
					[]string{s.json(of, scalars{texts: []string{texts}, numbers: []string{number}}, in)},
					[]string{s.json(of, scalars{texts: []string{texts}, numbers: []string{number}, prefersNumbers: true}, in)},
				)
			}
		}
	case of.isParameter():
		for _, one := range s.values.orders {
			groups = append(slices.Clip(groups), []string{one.greatest})
		}
		for _, zone := range s.values.zones {
			groups = append(slices.Clip(groups), []string{zone})
		}
		// A value that is that of another fact is known.
		groups = slices.DeleteFunc(slices.Clone(groups), func(group []string) bool {
			return len(group) == 1 && slices.Contains(slices.Collect(maps.Values(in.optional)), group[0]) && in.optional[of] != group[0]
		})
	}
	return groups
}

// extremes returns an unknown text, and the least and the greatest one of each order.
func (s *search) extremes() []string {
	texts := []string{unknown}
	for _, one := range s.values.orders {
		texts = append(texts, one.least[0], one.greatest)
	}
	return texts
}

// known returns fact values with which a pod may pass, short ones first; the last one has all values if it is a list. A parameter may
// have to be a name or another fact in the input.
func (s *search) known(of fact, in facts) []string {
	if of.encoding == asTime {
		return []string{in.before(30 * 24 * time.Hour)}
	}
	found := slices.Clone(s.permitting[of])
	texts := s.texts(of, in)
	for _, one := range s.values.orders {
		if of.isParameter() {
			texts = append(texts, one.least[0])
		}
	}
	if of.encoding == asQuantity {
		texts = append(slices.Clip(texts), most)
	}
	if of.encoding != asJSON {
		return append(found, texts...)
	}
	numbers := s.numbers()
	if of == ruleConditions() {
		found = append(found, "[]") // with the type of the operation
	}
	for i := range max(len(texts), len(numbers)) {
		same := scalars{texts: []string{texts[i%len(texts)]}, numbers: []string{numbers[i%len(numbers)]}, isTrue: true}
		found = append(found, s.json(of, same, in))
	}
	for range maxMixed {
		found = append(found, s.json(of, scalars{texts: texts, numbers: numbers, isTrue: true, random: s.random}, in))
	}
	found = distinct(found, nil)
	slices.SortStableFunc(found, func(a, b string) int { return len(a) - len(b) })
	return append(found, s.json(of, scalars{texts: texts, numbers: numbers, isTrue: true, isAll: true}, in))
}

// texts returns the texts that a fact may have in an input, of the values with which a pod may pass; at least one.
func (s *search) texts(of fact, in facts) []string {
	texts := s.values.known
	if of.isParameter() {
		texts = slices.Concat(texts, s.names(in), s.values.zones)
		for about, value := range in.optional {
			if about.encoding != asJSON && about.encoding != asTime {
				texts = append(texts, value)
			}
		}
		texts = distinct(texts, nil)
	}
	if len(texts) == 0 {
		return []string{"web"}
	}
	return texts
}

// numbers returns the numbers that a parameter may have with which a pod passes.
func (s *search) numbers() []string { return slices.Concat([]string{most}, s.values.numbers, small()) }

// small returns the numbers that hours, minutes and days of a month may be.
func small() []string {
	var found []string
	for number := range 60 {
		found = append(found, strconv.Itoa(number))
	}
	return found
}

// names returns the names in an input.
func (s *search) names(in facts) []string {
	if in.given == nil {
		return []string{in.text(podName), in.text(namespaceName), "node-1", "web", in.text(registry)}
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
