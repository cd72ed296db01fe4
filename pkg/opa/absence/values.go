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

	// parsesTime is true for a module that parses points in time, and ordersTexts for one that compares texts by order.
	parsesTime, ordersTexts bool

	// numbers are the first numbers in the module.
	numbers []string
}

// Values with which a pod passes or waits if their order decides. most is more than a point in time, in nanoseconds.
const (
	leastText       = "!"
	least, most     = "0", "9000000000000000000"
	earliest, later = "1970-01-01T00:00:00Z", "2199-01-01T00:00:00Z"
)

// newValues returns the values for a module with these strings.
func newValues(constants vet.Constants, source string, named []string) values {
	named = distinct(named, examples(named))
	named = named[:min(len(named), maxValues)]
	made := values{
		known: named, unknown: [][]string{{unknown}}, parsesTime: strings.Contains(source, "time.parse_rfc3339_ns("),
		ordersTexts: constants.Reads.OrdersTexts, numbers: constants.Numbers[:min(len(constants.Numbers), maxValues)],
	}
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
	if strings.Contains(source, "time.weekday(") {
		for day := time.Sunday; day <= time.Saturday; day++ {
			made.known = append(made.known, day.String())
		}
	}
	// Where the order decides, an absent value counts as the least ones, and a pod may pass with the greatest one.
	if constants.Reads.OrdersTexts {
		made.order([]string{leastText, "0"}, "~")
	}
	if strings.Contains(source, "to_number(") || strings.Contains(source, "units.parse") {
		made.known = append(made.known, made.numbers...)
		made.unknown = append(made.unknown, []string{"0.5", "987654321"})
		made.order([]string{"0", "0.5"}, "987654321")
	}
	if strings.Contains(source, "semver.") {
		made.unknown = append(made.unknown, []string{"0.0.1-alpha", "999.0.0"})
		made.order([]string{"0.0.1-alpha", "0.0.2"}, "999.0.0")
	}
	if made.parsesTime {
		made.order([]string{earliest, "1970-01-01T00:00:01Z"}, later)
	}
	return made
}

// order adds the least values of an order, and the greatest one.
func (v *values) order(least []string, greatest string) {
	v.unknown, v.known = append(v.unknown, least), append(slices.Clip(v.known), greatest)
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

// unknown returns groups of fact values that no module names. A module that compares by order names a bound: an absent fact counts as the
// least value there, like a zero value in Go.
func (s *search) unknown(of fact, in facts) [][]string {
	switch of.encoding { //nolint:exhaustive // Others have the values of strings.
	case asJSON:
		var groups [][]string
		for _, from := range []scalars{
			{texts: []string{unknown}, numbers: []string{least}}, {texts: []string{unknown}, numbers: []string{most}},
			{texts: []string{earliest}, numbers: []string{least}, prefersNumbers: true},
			{texts: []string{later}, numbers: []string{most}, prefersNumbers: true},
		} {
			groups = append(groups, []string{s.json(of, from, in)})
		}
		return groups
	case asTime:
		return [][]string{{before(in, time.Second)}}
	case asString:
		if of.isParameter() && s.values.parsesTime {
			return append(slices.Clone(s.values.unknown), []string{earliest}, []string{later})
		}
	}
	return s.values.unknown
}

// known returns fact values with which a pod may pass, short ones first; the last one has all values if it is a list. A parameter may
// have to be a name or another fact in the input.
func (s *search) known(of fact, in facts) []string {
	if of.encoding == asTime {
		return []string{before(in, 30*24*time.Hour)}
	}
	found := slices.Clone(s.permitting[of])
	texts := s.texts(of, in)
	if of.encoding != asJSON {
		return append(found, texts...)
	}
	numbers := slices.Concat([]string{most}, s.values.numbers, small())
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

// before returns a point in time before that of an input, in nanoseconds.
func before(in facts, by time.Duration) string {
	at := now
	if in.given != nil {
		at = in.given.now
	}
	return strconv.FormatInt(at-by.Nanoseconds(), 10)
}

// small returns the numbers that hours, minutes and days of a month may be.
func small() []string {
	var found []string
	for number := range 60 {
		found = append(found, strconv.Itoa(number))
	}
	return found
}

// texts returns the texts that a fact may have in an input, of the values with which a pod may pass.
func (s *search) texts(of fact, in facts) []string {
	if !of.isParameter() {
		return s.values.known
	}
	texts := slices.Concat(s.values.known, s.names(in))
	for about, value := range in.optional {
		if about.encoding != asJSON && about.encoding != asTime {
			texts = append(texts, value)
		}
	}
	if s.values.parsesTime {
		texts = append(texts, earliest, later)
	}
	return distinct(texts, []string{"web"})
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
