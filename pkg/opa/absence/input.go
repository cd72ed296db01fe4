package absence

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// now is the time of the inputs that are made, a Monday, in nanoseconds.
const now = int64(1767607200000000000)

// input returns the input document with the facts, in the schema of policies/schema/input.json.
func (s *search) input(from facts) (json.RawMessage, error) {
	document, err := s.document(from)
	if err != nil {
		return nil, err
	}
	var before map[fact]string
	if from.given != nil {
		before = from.given.optional
	}
	for _, one := range s.facts {
		value, present := from.optional[one]
		if present {
			extend(document, one.object)
		}
		object := entries(document, one.object)
		had, known := before[one]
		switch {
		case object == nil || present && known && value == had:
		case present:
			object[one.key] = one.document(value)
		case !one.isField():
			delete(object, one.key)
		}
	}
	apply(document)
	if pod := entries(document, "pod"); from.isDown && pod != nil {
		pod["ready"], pod["available"] = false, false
	}
	return json.Marshal(document)
}

// document returns the document of the input that is given, or one with the facts that are not optional.
func (s *search) document(from facts) (map[string]any, error) {
	if from.given != nil {
		return decode(from.given.text)
	}
	parameters, err := decode([]byte(cmp.Or(string(s.module.Custom.Parameters), "{}")))
	if err != nil {
		return nil, err
	}
	others := []any{}
	for i := range from.others {
		others = append(others, podDocument(from, fmt.Sprintf("web-%d", i+1)))
	}
	return map[string]any{
		"stage": s.module.Stage, "now": now, "parameters": parameters,
		"operation": map[string]any{"id": "pod-delete", "type": from.operation, "cause": "", "since": now - 1e9},
		"pod":       podDocument(from, "web-0"), "pods": others,
		"namespace": map[string]any{"name": from.namespace, "labels": map[string]any{}},
		"owner": map[string]any{
			"kind": from.owner, "name": "web", "uid": "web", "desired": from.others + 1, "revision": "1", "paused": from.paused,
		},
		"node": map[string]any{
			"name": "node-1", "labels": map[string]any{}, "zone": "zone-1", "unschedulable": from.cordoned, "conditions": map[string]any{},
		},
		"counts":  map[string]any{"selected": from.others + 1, "desired": from.others + 1, "available": from.others, "reserved": 0},
		"permits": []any{}, "rule": map[string]any{"name": "rule", "stage": "PreCheck", "enforcement": "Enforce"},
	}, nil
}

// apply makes the rule in a document one that is for its pod: the engine evaluates no other.
func apply(document map[string]any) {
	rule, labels := entries(document, "rule"), entries(document, "pod.labels")
	if conditions, ok := rule["conditions"].(json.RawMessage); ok {
		var types []any
		if err := json.Unmarshal(conditions, &types); err == nil {
			rule["conditions"] = append(types, entries(document, "operation")["type"])
		}
	}
	for key, value := range entries(document, "rule.filter.matchLabels") {
		if _, present := labels[key]; !present && labels != nil {
			labels[key] = value
		}
	}
}

// extend adds the objects on a path of fields that a document does not have.
func extend(document map[string]any, path string) {
	for _, name := range strings.Split(path, ".") {
		below, present := document[name]
		if !present && !strings.Contains(path, "[") {
			below = map[string]any{}
			document[name] = below
		}
		object, ok := below.(map[string]any)
		if !ok {
			return
		}
		document = object
	}
}

func podDocument(from facts, name string) map[string]any {
	created := now - from.age*1e9
	since := created
	if !from.available {
		since = 0
	}
	return map[string]any{
		"name": name, "namespace": from.namespace, "uid": name, "labels": map[string]any{}, "annotations": map[string]any{},
		"owner":    map[string]any{"kind": from.owner, "name": "web", "uid": "web"},
		"revision": map[string]any{"current": "1", "state": from.revision},
		"node":     "node-1", "created": created, "ready": from.available, "available": from.available,
		"available_since": since, "permitted": false, "skip_rules": []string{},
		"images": []any{map[string]any{"container": "app", "registry": "docker.io", "repository": "library/web", "tag": "1.0.0", "digest": ""}},
		"resources": []any{map[string]any{
			"container": "app", "requests": map[string]any{}, "limits": map[string]any{},
		}},
		"restarts": 0, "conditions": map[string]any{}, "started": created, "ready_since": since,
	}
}

// document returns the value of a fact as it is written in the input.
func (f fact) document(value string) any {
	switch f.encoding {
	case asCondition:
		return map[string]any{"status": value, "reason": "", "since": now - 1e9}
	case asQuantity: // one gibibyte for what is no number
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			number, value = 1<<30, "1Gi"
		}
		return map[string]any{"value": number, "text": value}
	case asJSON, asTime:
		return json.RawMessage(value)
	default:
		return value
	}
}

// read returns which of the facts a document has.
func read(document map[string]any, about []fact) map[fact]string {
	found := map[fact]string{}
	for _, one := range about {
		value, present := entries(document, one.object)[one.key]
		if one.encoding == asJSON && present {
			if encoded, err := json.Marshal(value); err == nil {
				found[one] = string(encoded)
			}
			continue
		}
		switch value := value.(type) {
		case string:
			found[one] = value
		case map[string]any: // a condition or a quantity
			for _, field := range []string{"status", "text"} {
				if text, ok := value[field].(string); ok {
					found[one] = text
				}
			}
		case json.Number:
			found[one] = value.String()
		}
	}
	return found
}

// decode reads a JSON object.
func decode(text []byte) (map[string]any, error) {
	document := map[string]any{}
	decoder := json.NewDecoder(strings.NewReader(string(text)))
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
