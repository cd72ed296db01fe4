package absence

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/podops-dev/podops/pkg/engine/opa/vet"
)

// fact is an optional fact in the input: a map entry, a field that is empty for some pods, or a parameter that a rule need not set.
type fact struct {
	object, key string

	// encoding is how its value is written in the input.
	encoding encoding
}

// encoding is how the value of a fact is written in the input.
type encoding string

// The encodings.
const (
	asString    encoding = ""
	asCondition encoding = "condition"
	asQuantity  encoding = "quantity"
	asTime      encoding = "time" // nanoseconds; 0 is no time
	asJSON      encoding = "JSON" // of a parameter, or a list
)

// String returns the path of the fact in the input.
func (f fact) String() string {
	if f.isField() || f == ruleConditions() || f.isParameter() && isName(f.key) {
		return "input." + f.object + "." + f.key
	}
	return fmt.Sprintf("input.%s[%q]", f.object, f.key)
}

// path returns the keys to the fact, like vet.InputRead.Path.
func (f fact) path() []string { return append(splitPath(f.object), f.key) }

// isName reports whether a key may follow a dot.
func isName(key string) bool {
	return !strings.ContainsFunc(key, func(char rune) bool { return char != '_' && !isLetterOrDigit(char) })
}

// isField reports whether the fact is always there: it is empty for a pod without an owner or a node, or for a node without a zone.
func (f fact) isField() bool { return slices.Contains(fields(), f) }

// isParameter reports whether the fact is a parameter.
func (f fact) isParameter() bool {
	return f.object == parametersObject || strings.HasPrefix(f.object, parametersObject+".")
}

// fields returns the optional facts that are fields.
func fields() []fact {
	var found []fact
	for _, path := range []string{
		"pod.node", "pod.owner.kind", "pod.owner.name", "pod.revision.current", "pod.images[0].tag", "pod.images[0].digest",
		"operation.cause", "operation.request.user", "owner.kind", "owner.name", "owner.revision", "node.name", "node.zone",
	} {
		at := strings.LastIndex(path, ".")
		found = append(found, fact{object: path[:at], key: path[at+1:]})
	}
	for _, key := range []string{"available_since", "ready_since", "started"} {
		found = append(found, fact{"pod", key, asTime})
	}
	return found
}

// ruleConditions is the fact which operation types the rule is for; all without it.
func ruleConditions() fact { return fact{"rule", "conditions", asJSON} }

// Form is how a pod lacks a fact, as a preposition before it.
type Form string

// The forms.
const (
	Absent    Form = "without"
	Empty     Form = "with an empty"
	Malformed Form = "with a malformed" // of another type than the builtins read that the module calls
	Zero      Form = "with 0 as"        // a time, while the pod does not serve
)

// forms returns how a pod may lack the fact. An author who compares with the empty text means that it may be empty. A rule cannot set
// parameters that are malformed, or empty where the schema forbids it.
func (s *search) forms(f fact) []Form {
	if f.encoding == asTime {
		return s.timeForms(f)
	}
	var forms []Form
	shape := s.shapes[f]
	if !f.isField() && !s.reads.isProvided[f] && (shape == nil || !shape.isRequired) {
		forms = append(forms, Absent)
	}
	if shape.isMap() && s.reads.hasEntries(f) {
		forms = append(forms, Empty)
	}
	if f.encoding == asString && !s.comparesWithEmpty && (shape == nil || shape.MinLength == 0) {
		forms = append(forms, Empty)
	}
	if f.encoding == asString && !f.isParameter() && s.values.malformed != "" {
		forms = append(forms, Malformed)
	}
	return forms
}

// timeForms returns how a pod may lack a time.
func (s *search) timeForms(f fact) []Form {
	if s.reads.isProvided[f] {
		return nil
	}
	return []Form{Zero}
}

// distinct returns the strings of both lists once, sorted.
func distinct(a, b []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(a, b))))
}

// facts are the facts of an input that differ between inputs.
type facts struct {
	optional map[fact]string

	// setting is what else differs in inputs that are made, by the names in findings.
	setting map[string]any

	// ended is the time that is 0 since the pod does not serve; the zero value for a pod as the setting has it.
	ended fact

	// given is the input that the optional facts are those of, if it was not made here.
	given *given
}

// The settings.
const (
	stage         = "input.stage"
	currentTime   = "input.now"
	operationType = "input.operation.type"
	waited        = "the seconds for which the operation has waited"
	namespaceName = "input.namespace.name"
	podName       = "input.pod.name"
	ownerKind     = "input.pod.owner.kind"
	revisionState = "input.pod.revision.state"
	registry      = "input.pod.images[0].registry"
	age           = "the age of the pod in seconds"
	available     = "input.pod.available"
	restarts      = "input.pod.restarts"
	paused        = "input.owner.paused"
	cordoned      = "input.node.unschedulable"
	others        = "the number of other pods"
	permits       = "the number of permits"
	permitted     = "the number of other pods that are permitted"
)

// usualSetting is that of a usual input: the Deployment web has one pod, which is available and is to be deleted on a Monday.
func usualSetting() map[string]any {
	return map[string]any{
		stage: "PreCheck", currentTime: monday, operationType: "delete", waited: int64(1), namespaceName: "shop", podName: "web-0", ownerKind: "Deployment",
		revisionState: "Newest", registry: "docker.io", age: int64(86400), available: true, restarts: int64(0), paused: false, cordoned: false,
		others: int64(0), permits: int64(0), permitted: int64(0),
	}
}

// drawSetting returns a random setting.
func (s *search) drawSetting() map[string]any {
	drawn := usualSetting()
	for _, name := range []string{operationType, namespaceName, ownerKind, revisionState, registry, podName} {
		usual, _ := drawn[name].(string)
		drawn[name] = s.value(usual)
	}
	if s.readsStage && s.random.IntN(2) == 0 {
		drawn[stage] = "PostCheck"
	}
	drawn[currentTime] = pick(s, monday, monday, saturday, inYears)
	drawn[waited] = pick(s, int64(1), 7200)
	drawn[age] = pick(s, int64(1), 600, 86400, 30*86400)
	drawn[available], drawn[paused] = s.random.IntN(4) > 0, s.random.IntN(4) == 0
	drawn[cordoned] = s.cordons && s.random.IntN(2) == 0
	drawn[restarts] = pick(s, int64(0), 0, 20)
	drawn[others] = pick(s, int64(0), 1, 2, 3, 12)
	drawn[permits] = pick(s, int64(0), 0, 1)
	drawn[permitted] = min(pick(s, int64(0), 0, 2), s.random.Int64N(4))
	return drawn
}

// text returns a setting that is a text.
func (f facts) text(name string) string {
	value, _ := f.setting[name].(string)
	return value
}

// number returns a setting that is a number.
func (f facts) number(name string) int64 {
	value, _ := f.setting[name].(int64)
	return value
}

// is returns a setting that is a boolean.
func (f facts) is(name string) bool {
	value, _ := f.setting[name].(bool)
	return value
}

// before returns a point in time before that of the input, in nanoseconds.
func (f facts) before(by time.Duration) string {
	at := f.number(currentTime)
	if f.given != nil {
		at = f.given.now
	}
	return strconv.FormatInt(at-by.Nanoseconds(), 10)
}

// replaced returns the facts with another form of one.
func (s *search) replaced(f facts, one fact, by Form) facts {
	switch by {
	case Empty:
		if one.encoding == asJSON {
			return f.with(one, "{}")
		}
		return f.with(one, "")
	case Malformed:
		return f.with(one, s.values.malformed)
	case Zero:
		f.ended = one
		return f.with(one, "0")
	default:
		return f.without(one)
	}
}

// without returns the facts without one; a field has its usual value then.
func (f facts) without(removed fact) facts {
	f.optional = maps.Clone(f.optional)
	delete(f.optional, removed)
	return f
}

// with returns the facts with one.
func (f facts) with(added fact, value string) facts {
	f.optional = maps.Clone(f.optional)
	f.optional[added] = value
	return f
}

// usual returns the facts of a usual input.
func usual() facts { return facts{optional: map[fact]string{}, setting: usualSetting()} }

// simplifications returns functions that each remove a fact, or give a setting its usual value.
func simplifications(optional []fact) []func(facts) facts {
	usual := usualSetting()
	var made []func(facts) facts
	for _, name := range slices.Sorted(maps.Keys(usual)) {
		made = append(made, func(f facts) facts {
			f.setting = maps.Clone(f.setting)
			f.setting[name] = usual[name]
			return f
		})
	}
	for _, one := range optional {
		made = append(made, func(f facts) facts { return f.without(one) })
	}
	return made
}

// described returns the facts that are not usual, sorted.
func (f facts) described() []string {
	var unusual []string
	for name, usual := range usualSetting() {
		switch value := f.setting[name]; {
		case value == usual:
		case name == currentTime:
			unusual = append(unusual, name+" "+time.Unix(0, f.number(currentTime)).UTC().Format(time.RFC3339))
		default:
			unusual = append(unusual, fmt.Sprintf("%s %v", name, value))
		}
	}
	for one, value := range f.optional {
		unusual = append(unusual, fmt.Sprintf("%s %s", one, cut(value)))
	}
	slices.Sort(unusual)
	return unusual
}

// draw returns random facts: each optional fact is absent, unknown or has a value that the module names.
func (s *search) draw() facts {
	drawn := facts{optional: map[fact]string{}, setting: s.drawSetting()}
	for _, one := range s.facts {
		if s.random.IntN(4) > 0 {
			drawn.optional[one] = s.optionalValue(one, drawn)
		}
	}
	for _, body := range s.reads.bodies {
		if s.random.IntN(2) == 0 {
			s.satisfy(&drawn, body)
		}
	}
	return drawn
}

// satisfy gives facts the values with which they are compared. Another rule may compare with another value.
func (s *search) satisfy(drawn *facts, body []vet.Equality) {
	names := map[string]string{"pod.namespace": namespaceName, "rule.stage": stage, "pod.images.[_].registry": registry}
	for _, equality := range body {
		path := strings.Join(equality.Path, ".")
		name := cmp.Or(names[path], "input."+path)
		if _, isText := drawn.setting[name].(string); isText {
			drawn.setting[name] = equality.Value
		}
		for _, one := range s.facts {
			path := one.path()
			if one.encoding == asCondition {
				path = append(path, "status")
			}
			switch {
			case !slices.Equal(path, equality.Path):
			case one.encoding == asJSON:
				drawn.optional[one] = strconv.Quote(equality.Value)
			default:
				drawn.optional[one] = equality.Value
			}
		}
	}
}

// optionalValue returns a random value of an optional fact. A parameter has no text that other facts have as an unknown one.
func (s *search) optionalValue(of fact, in facts) string {
	switch {
	case of.encoding == asJSON:
		from := scalars{texts: s.texts(of, in), numbers: s.numbers(), isTrue: true, random: s.random, isAll: s.random.IntN(3) == 0}
		if s.random.IntN(2) == 0 {
			from.numbers = []string{"0", "1", "2"}
		}
		return s.json(of, from, in)
	case of.encoding == asString && len(s.values.orders) > 0 && s.random.IntN(2) == 0:
		order := pick(s, s.values.orders...)
		return pick(s, slices.Concat(order.least, []string{order.greatest})...)
	case of.isParameter():
		return pick(s, s.known(of, in)...)
	case of.encoding == asTime && s.random.IntN(2) == 0:
		return pick(s, s.known(of, in)...)
	default:
		unknown := pick(s, pick(s, s.unknown(of, in)...)...)
		if of.encoding == asTime {
			return unknown
		}
		return pick(s, s.value(unknown), pick(s, append(s.values.known, unknown)...))
	}
}

// value returns a value that the module names, or the other one.
func (s *search) value(other string) string {
	if i := s.random.IntN(len(s.values.named) + 1); i < len(s.values.named) && s.random.IntN(3) > 0 {
		return s.values.named[i]
	}
	return other
}

func pick[T any](s *search, values ...T) T { return values[s.random.IntN(len(values))] }
