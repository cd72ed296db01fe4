package absence

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/podops-dev/podops/pkg/opa/vet"
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
	if f.isField() || f.isParameter() || f == ruleConditions() {
		return "input." + f.object + "." + f.key
	}
	return fmt.Sprintf("input.%s[%q]", f.object, f.key)
}

// isField reports whether the fact is always there: it is empty for a pod without an owner or a node, or for a node without a zone.
func (f fact) isField() bool { return slices.Contains(fields(), f) }

// isParameter reports whether the fact is a parameter.
func (f fact) isParameter() bool {
	return f.object == parametersObject || strings.HasPrefix(f.object, parametersObject+".")
}

// parameter returns the name of the parameter that the fact is, or is in.
func (f fact) parameter() string {
	return strings.Split(f.object+"."+f.key, ".")[1]
}

// fields returns the optional facts that are fields.
func fields() []fact {
	var found []fact
	for _, path := range []string{
		"pod.node", "pod.owner.kind", "pod.owner.name", "pod.revision.current", "pod.images[0].tag", "pod.images[0].digest",
		"operation.cause", "owner.kind", "owner.name", "owner.revision", "node.name", "node.zone",
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
	var forms []Form
	shape := s.shapes[f]
	if !f.isField() && !s.reads.isProvided[f] && (shape == nil || !shape.isRequired) {
		forms = append(forms, Absent)
	}
	if shape.isMap() && s.reads.hasEntries(f) {
		forms = append(forms, Empty)
	}
	if f.encoding == asTime && !s.reads.isProvided[f] {
		forms = append(forms, Zero)
	}
	if f.encoding == asString && !s.comparesWithEmpty && (shape == nil || shape.MinLength == 0) {
		forms = append(forms, Empty)
	}
	if f.encoding == asString && !f.isParameter() && s.values.malformed != "" {
		forms = append(forms, Malformed)
	}
	return forms
}

// distinct returns the strings of both lists once, sorted.
func distinct(a, b []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(a, b))))
}

// facts are the facts of an input that differ between inputs.
type facts struct {
	optional  map[fact]string
	operation string
	namespace string
	owner     string
	revision  string
	age       int64
	available bool
	paused    bool
	cordoned  bool
	others    int

	// isDown is true for a pod that is neither ready nor available.
	isDown bool

	// given is the input that the optional facts are those of, if it was not made here.
	given *given
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
		f.isDown = true
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

// usual returns the facts of a usual input: the Deployment web has one pod, which is available and is to be deleted.
func usual() facts {
	return facts{optional: map[fact]string{}, operation: "delete", namespace: "shop", owner: "Deployment", revision: "Newest", age: 86400, available: true}
}

// simplifications returns functions that each remove a fact, or give it its usual value.
func simplifications(optional []fact) []func(facts) facts {
	usual := usual()
	made := []func(facts) facts{
		func(f facts) facts { f.operation = usual.operation; return f },
		func(f facts) facts { f.namespace = usual.namespace; return f },
		func(f facts) facts { f.owner = usual.owner; return f },
		func(f facts) facts { f.revision = usual.revision; return f },
		func(f facts) facts { f.age = usual.age; return f },
		func(f facts) facts { f.available = usual.available; return f },
		func(f facts) facts { f.others = usual.others; return f },
		func(f facts) facts { f.paused = usual.paused; return f },
		func(f facts) facts { f.cordoned = usual.cordoned; return f },
	}
	for _, one := range optional {
		made = append(made, func(f facts) facts { return f.without(one) })
	}
	return made
}

// described returns the facts that are not usual, sorted.
func (f facts) described() []string {
	var unusual []string
	usual := usual()
	for _, one := range []struct {
		path        string
		value, with any
	}{
		{"input.operation.type", f.operation, usual.operation}, {"input.namespace.name", f.namespace, usual.namespace},
		{"input.pod.owner.kind", f.owner, usual.owner}, {"input.pod.revision.state", f.revision, usual.revision},
		{"the age of the pod in seconds", f.age, usual.age}, {"input.pod.available", f.available, usual.available},
		{"the number of other pods", f.others, usual.others}, {"input.owner.paused", f.paused, usual.paused},
		{"input.node.unschedulable", f.cordoned, usual.cordoned},
	} {
		if one.value != one.with {
			unusual = append(unusual, fmt.Sprintf("%s %v", one.path, one.value))
		}
	}
	for one, value := range f.optional {
		unusual = append(unusual, fmt.Sprintf("%s %s", one, value))
	}
	slices.Sort(unusual)
	return unusual
}

// draw returns random facts: each optional fact is absent, unknown or has a value that the module names.
func (s *search) draw() facts {
	drawn := facts{
		optional: map[fact]string{}, operation: s.value("delete"), namespace: s.value("shop"), owner: s.value("Deployment"), revision: s.value("Newest"),
		age: pick(s, int64(1), 600, 86400, 30*86400), available: s.random.IntN(4) > 0, others: s.random.IntN(4),
		paused: s.random.IntN(4) == 0, cordoned: s.cordons && s.random.IntN(2) == 0,
	}
	for _, one := range s.facts {
		if s.random.IntN(4) > 0 {
			drawn.optional[one] = s.optionalValue(one)
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
	for _, equality := range body {
		switch path := strings.Join(equality.Path, "."); path {
		case "operation.type":
			drawn.operation = equality.Value
		case "namespace.name", "pod.namespace":
			drawn.namespace = equality.Value
		case "pod.owner.kind":
			drawn.owner = equality.Value
		case "pod.revision.state":
			drawn.revision = equality.Value
		}
		for _, one := range s.facts {
			path := append(splitPath(one.object), one.key)
			if one.encoding == asCondition {
				path = append(path, "status")
			}
			if slices.Equal(path, equality.Path) {
				drawn.optional[one] = equality.Value
			}
		}
	}
}

// optionalValue returns a random value of an optional fact.
func (s *search) optionalValue(of fact) string {
	group := pick(s, s.unknown(of, facts{})...)
	unknown := pick(s, group...)
	switch {
	case of.encoding != asJSON && of.encoding != asTime:
		return s.value(unknown)
	case of.encoding == asTime && s.random.IntN(2) == 0:
		return unknown
	default:
		known := s.known(of, facts{})
		return pick(s, pick(s, known...), known[len(known)-1])
	}
}

// value returns a value that the module names, or the other one.
func (s *search) value(other string) string {
	if i := s.random.IntN(len(s.values.known) + 1); i < len(s.values.known) && s.random.IntN(3) > 0 {
		return s.values.known[i]
	}
	return other
}

func pick[T any](s *search, values ...T) T { return values[s.random.IntN(len(values))] }
