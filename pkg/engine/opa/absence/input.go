package absence

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// Times of the inputs that are made, in nanoseconds.
const (
	monday   = int64(1767607200000000000) // 2026-01-05T10:00:00Z
	saturday = int64(1768015800000000000) // 2026-01-10T03:30:00Z
	inYears  = int64(1940882400000000000) // 2031-07-03T22:00:00Z
)

// input returns the input document with the facts, in the schema of policies/schema/input.json, and its stage.
func (s *search) input(from facts) (json.RawMessage, appsv1alpha1.TransitionStage, error) {
	document, err := s.document(from)
	if err != nil {
		return nil, "", err
	}
	s.write(document, from)
	apply(document)
	if pod := entries(document, "pod"); pod != nil && (from.ended != fact{} || from.given == nil && !from.is(available)) {
		stop(pod, from.ended.key)
	}
	text, err := json.Marshal(document)
	stage, _ := document["stage"].(string)
	return text, appsv1alpha1.TransitionStage(stage), err
}

// write writes the optional facts that a document does not have yet, and removes others.
func (s *search) write(document map[string]any, from facts) {
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
			object[one.key] = one.document(value, from)
		case !one.isField() && !s.shapes[one].mustBeSet():
			delete(object, one.key)
		}
	}
}

// stop makes a pod one that does not serve: the times since which it does are 0, but for a given one. A pod that is not
// available for another reason may be ready.
func stop(pod map[string]any, but string) {
	zero := []string{"available_since", "ready_since"}
	pod["available"] = false
	if but == "available_since" {
		zero = nil
	} else {
		pod["ready"] = false
		if conditions, ok := pod["conditions"].(map[string]any); ok && conditions["Ready"] != nil {
			conditions["Ready"] = map[string]any{"status": "False", "reason": "", "since": 0}
		}
	}
	for _, name := range zero {
		if _, isThere := pod[name]; isThere && name != but {
			pod[name] = 0
		}
	}
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
	other := []any{}
	for i := range from.number(others) {
		pod := podDocument(from, fmt.Sprintf("web-%d", i+1))
		if i < from.number(permitted) {
			pod["permitted"], pod["available"], pod["available_since"] = true, false, 0
		}
		other = append(other, pod)
	}
	given := []any{}
	for i := range from.number(permits) {
		given = append(given, map[string]any{"pod": fmt.Sprintf("web-%d", i+1), "at": from.number(currentTime) - 60e9})
	}
	count, now := from.number(others), from.number(currentTime)
	return map[string]any{
		"stage": from.text(stage), "now": now, "parameters": parameters,
		"operation": map[string]any{
			"id": "pod-delete", "type": from.text(operationType), "cause": "", "since": now - from.number(waited)*1e9,
			"request": map[string]any{"method": "", "actor": "", "user": "", "groups": []any{}, "groups_truncated": false},
		},
		"pod": podDocument(from, from.text(podName)), "pods": other,
		"namespace": map[string]any{"name": from.text(namespaceName), "labels": map[string]any{}},
		"owner": map[string]any{
			"kind": from.text(ownerKind), "name": "web", "uid": "web", "desired": count + 1, "revision": "1", "paused": from.is(paused),
		},
		"node": map[string]any{
			"name": "node-1", "labels": map[string]any{}, "zone": "zone-1", "unschedulable": from.is(cordoned), "conditions": map[string]any{},
		},
		"counts":  map[string]any{"selected": count + 1, "desired": count + 1, "available": count, "reserved": min(count, from.number(permitted))},
		"permits": given, "rule": map[string]any{"name": "rule", "stage": from.text(stage), "enforcement": "Enforce"},
	}, nil
}

// apply makes the rule in a document one that is for its pod: the engine evaluates no other.
func apply(document map[string]any) {
	rule, labels := entries(document, "rule"), entries(document, "pod.labels")
	if conditions, ok := rule["conditions"].(json.RawMessage); ok {
		var types []any
		if err := json.Unmarshal(conditions, &types); err == nil {
			operation, _ := entries(document, "operation")["type"].(string)
			types = slices.DeleteFunc(types, func(one any) bool { return one == any(operation) })
			rule["conditions"] = append(types, operation)
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
	created := from.number(currentTime) - from.number(age)*1e9
	return map[string]any{
		"name": name, "namespace": from.text(namespaceName), "uid": name, "labels": map[string]any{}, "annotations": map[string]any{},
		"owner":    map[string]any{"kind": from.text(ownerKind), "name": "web", "uid": "web"},
		"revision": map[string]any{"current": "1", "state": from.text(revisionState)},
		"node":     "node-1", "created": created, "ready": from.is(available), "available": from.is(available),
		"available_since": created, "permitted": false, "skip_rules": []string{},
		"images": []any{map[string]any{
			"container": "app", "registry": from.text(registry), "repository": "library/web", "tag": "1.0.0", "digest": "",
		}},
		"resources": []any{map[string]any{
			"container": "app", "requests": map[string]any{}, "limits": map[string]any{},
		}},
		"restarts": from.number(restarts), "conditions": map[string]any{}, "started": created, "ready_since": created,
	}
}

// document returns the value of a fact as it is written in the input.
func (f fact) document(value string, in facts) any {
	switch f.encoding {
	case asCondition:
		return map[string]any{"status": value, "reason": "", "since": json.RawMessage(in.before(time.Second))}
	case asQuantity: // one gibibyte for what is no number
		number, err := strconv.ParseFloat(value, 64)
		if err != nil || math.IsInf(number, 0) || math.IsNaN(number) {
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
