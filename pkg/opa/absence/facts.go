package absence

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// fact is an optional fact in the input: a map entry, or a field that is empty for some pods.
type fact struct{ object, key string }

// String returns the path of the fact in the input.
func (f fact) String() string {
	if f.isField() {
		return "input." + f.object + "." + f.key
	}
	return fmt.Sprintf("input.%s[%q]", f.object, f.key)
}

// isField reports whether the fact is always there: it is empty for a pod without an owner or a node, or for a node without a zone.
func (f fact) isField() bool { return slices.Contains(fields(), f) }

// fields returns the optional facts that are fields.
func fields() []fact {
	return []fact{{"pod", "node"}, {"pod.owner", "kind"}, {"pod.owner", "name"}, {"node", "zone"}}
}

// Form is how a pod lacks a fact, as a preposition before it.
type Form string

// The forms.
const (
	Absent Form = "without"
	Empty  Form = "with an empty"
)

// forms returns how a pod may lack the fact. An author who compares with the empty text means that it may be empty.
func (f fact) forms(comparesWithEmpty bool) []Form {
	var forms []Form
	if !f.isField() {
		forms = append(forms, Absent)
	}
	if !comparesWithEmpty {
		forms = append(forms, Empty)
	}
	return forms
}

// The maps whose entries are optional.
const (
	podLabels       = "pod.labels"
	podAnnotations  = "pod.annotations"
	namespaceLabels = "namespace.labels"
	podConditions   = "pod.conditions"
	podRequests     = "pod.resources[0].requests"
	podLimits       = "pod.resources[0].limits"
	nodeLabels      = "node.labels"
	nodeConditions  = "node.conditions"
)

// optionalFacts returns the facts that a module with these constant keys can read.
func optionalFacts(keys []string) []fact {
	names := fieldNames()
	var found []fact
	objects := []string{podLabels, podAnnotations, namespaceLabels}
	for _, object := range []string{podConditions, podRequests, podLimits} {
		if slices.Contains(keys, object[strings.LastIndex(object, ".")+1:]) {
			objects = append(objects, object)
		}
	}
	if slices.Contains(keys, "node") {
		objects = append(objects, nodeLabels, nodeConditions)
	}
	for _, one := range fields() {
		if slices.Contains(keys, one.key) {
			found = append(found, one)
		}
	}
	for _, object := range objects {
		for _, key := range keys {
			if !names[key] && len(found) < maxFacts {
				found = append(found, fact{object, key})
			}
		}
	}
	return found
}

// computesKeys reports whether a module reads labels or annotations by keys that are not written in the reference.
func computesKeys(source string) bool {
	return regexp.MustCompile(`(labels|annotations)\[[^"\x60]`).MatchString(source)
}

// stringsBelow returns the strings in a JSON document, or none without one.
func stringsBelow(document json.RawMessage) ([]string, error) {
	if len(document) == 0 {
		return nil, nil
	}
	var value any
	if err := json.Unmarshal(document, &value); err != nil {
		return nil, fmt.Errorf("reading the parameters: %w", err)
	}
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
	collect(value)
	return found, nil
}

// distinct returns the strings of both lists once, sorted.
func distinct(a, b []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(a, b))))
}

// fieldNames returns the names that are fields on the way to the maps: as keys of a map they would only cost time.
func fieldNames() map[string]bool {
	names := map[string]bool{}
	for _, name := range []string{"pod", "labels", "annotations", "namespace", "parameters", "operation", "pods", "counts", "permits", "rule", "now", "stage",
		"images", "resources", "restarts", "conditions", "requests", "limits", "container", "registry", "repository", "tag", "digest", "value", "text",
		"status", "reason", "since", "node", "zone", "unschedulable"} {
		names[name] = true
	}
	return names
}

// facts are the facts of an input that differ between inputs.
type facts struct {
	optional  map[fact]string
	operation string
	cause     string
	namespace string
	owner     string
	age       int64
	available bool
	paused    bool
	cordoned  bool
	others    int

	// given is the input that the optional facts are those of, if it was not made here.
	given *given
}

// replaced returns the facts with another form of one.
func (f facts) replaced(one fact, by Form) facts {
	if by == Empty {
		return f.with(one, "")
	}
	return f.without(one)
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
	return facts{optional: map[fact]string{}, operation: "delete", namespace: "shop", owner: "Deployment", age: 86400, available: true}
}

// simplifications returns functions that each remove a fact, or give it its usual value.
func simplifications(optional []fact) []func(facts) facts {
	usual := usual()
	made := []func(facts) facts{
		func(f facts) facts { f.operation = usual.operation; return f },
		func(f facts) facts { f.cause = usual.cause; return f },
		func(f facts) facts { f.namespace = usual.namespace; return f },
		func(f facts) facts { f.owner = usual.owner; return f },
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
		{"input.operation.type", f.operation, usual.operation}, {"input.operation.cause", f.cause, usual.cause},
		{"input.namespace.name", f.namespace, usual.namespace}, {"input.pod.owner.kind", f.owner, usual.owner},
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
		optional: map[fact]string{}, operation: s.value("delete"), cause: pick(s, "", "Rollout", "ScaleIn"), namespace: s.value("shop"),
		owner: s.value("Deployment"), age: pick(s, int64(1), 600, 86400, 30*86400), available: s.random.IntN(4) > 0, others: s.random.IntN(4),
		paused: s.random.IntN(4) == 0, cordoned: s.cordons && s.random.IntN(2) == 0,
	}
	for _, one := range s.facts {
		if s.random.IntN(4) > 0 {
			drawn.optional[one] = s.value(unknown)
		}
	}
	return drawn
}

// value returns a value that the module names, or the other one.
func (s *search) value(other string) string {
	if i := s.random.IntN(len(s.values) + 1); i < len(s.values) && s.random.IntN(3) > 0 {
		return s.values[i]
	}
	return other
}

func pick[T any](s *search, values ...T) T { return values[s.random.IntN(len(values))] }

// now is the time of the inputs, a Monday, in nanoseconds.
const now = int64(1767607200000000000)

// input returns the input document with the facts, in the schema of policies/schema/input.json.
func (s *search) input(from facts) (json.RawMessage, error) {
	if from.given != nil {
		return from.given.input(s.facts, from.optional)
	}
	pod := func(name string, entries map[string]map[string]string) map[string]any {
		created := now - from.age*1e9
		node, owner, ownerName := "node-1", from.owner, "web"
		for one, value := range map[fact]*string{{"pod", "node"}: &node, {"pod.owner", "kind"}: &owner, {"pod.owner", "name"}: &ownerName} {
			if set, ok := from.optional[one]; ok {
				*value = set
			}
		}
		return map[string]any{
			"name": name, "namespace": from.namespace, "uid": name, "labels": entries[podLabels], "annotations": entries[podAnnotations],
			"owner":    map[string]any{"kind": owner, "name": ownerName, "uid": "web"},
			"revision": map[string]any{"current": "1", "state": "Newest"},
			"node":     node, "created": created, "ready": from.available, "available": from.available,
			"available_since": created, "permitted": false, "skip_rules": []string{},
			"images": []any{map[string]any{"container": "app", "registry": "docker.io", "repository": "library/web", "tag": "1.0.0", "digest": ""}},
			"resources": []any{map[string]any{
				"container": "app", "requests": quantities(entries[podRequests]), "limits": quantities(entries[podLimits]),
			}},
			"restarts": 0, "conditions": conditions(entries[podConditions], created), "started": created, "ready_since": created,
		}
	}
	none := func() map[string]map[string]string {
		return map[string]map[string]string{
			podLabels: {}, podAnnotations: {}, namespaceLabels: {}, podConditions: {}, podRequests: {}, podLimits: {}, nodeLabels: {}, nodeConditions: {},
		}
	}
	entries := none()
	for one, value := range from.optional {
		if !one.isField() {
			entries[one.object][one.key] = value
		}
	}
	others := []any{}
	for i := range from.others {
		others = append(others, pod(fmt.Sprintf("web-%d", i+1), none()))
	}
	subject, zone := pod("web-0", entries), "zone-1"
	if set, ok := from.optional[fact{"node", "zone"}]; ok {
		zone = set
	}
	return json.Marshal(map[string]any{
		"stage": s.module.Stage, "now": now,
		"operation":  map[string]any{"id": "pod-delete", "type": from.operation, "cause": from.cause, "since": now - 1e9},
		"parameters": json.RawMessage(cmp.Or(string(s.module.Custom.Parameters), "{}")),
		"pod":        subject, "pods": others,
		"namespace": map[string]any{"name": from.namespace, "labels": entries[namespaceLabels]},
		"owner": map[string]any{
			"kind": from.owner, "name": "web", "uid": "web", "desired": from.others + 1, "revision": "1", "paused": from.paused,
		},
		"node": map[string]any{
			"name": subject["node"], "labels": entries[nodeLabels], "zone": zone, "unschedulable": from.cordoned,
			"conditions": entries[nodeConditions],
		},
		"counts":  map[string]any{"selected": from.others + 1, "desired": from.others + 1, "available": from.others, "reserved": 0},
		"permits": []any{}, "rule": map[string]any{"name": "rule", "stage": "PreCheck", "enforcement": "Enforce", "conditions": []string{}},
	})
}

// conditions returns the conditions with these statuses.
func conditions(statuses map[string]string, since int64) map[string]any {
	found := map[string]any{}
	for name, status := range statuses {
		found[name] = map[string]any{"status": status, "reason": "", "since": since}
	}
	return found
}

// quantities returns the quantities with these values, or with one gibibyte for values that are no numbers.
func quantities(values map[string]string) map[string]any {
	found := map[string]any{}
	for name, text := range values {
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			value, text = 1<<30, "1Gi"
		}
		found[name] = map[string]any{"value": value, "text": text}
	}
	return found
}
