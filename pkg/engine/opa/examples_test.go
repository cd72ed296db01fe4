package opa_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/rego"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/policies"
)

// TestNoExamplePassesWithoutAFact takes the inputs with which the tests of each worked policy
// expect a pod to be withheld, and adds every other fact: the pod is still withheld, also after any
// single fact is removed.
func TestNoExamplePassesWithoutAFact(t *testing.T) {
	files, err := fs.Glob(policies.All(), "examples/*/*.rego")
	if err != nil {
		t.Fatal(err)
	}
	tested := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.rego") {
			continue
		}
		tested++
		t.Run(path.Base(path.Dir(file)), func(t *testing.T) { checkExample(t, file) })
	}
	if tested == 0 {
		t.Error("there are no examples")
	}
}

func checkExample(t *testing.T, file string) {
	source, err := fs.ReadFile(policies.All(), file)
	if err != nil {
		t.Fatal(err)
	}
	module := customRule(t, appsv1alpha1.TransitionRule{Name: "mine"}, spec.Custom{Source: string(source)})
	e := newEngine(t, patient())
	for name, given := range waiting(t, file) {
		input, err := json.Marshal(completed(given))
		if err != nil {
			t.Fatal(err)
		}
		output, err := e.Replay(t.Context(), module, input)
		if err != nil || !strings.Contains(string(output), `"withheld":{"request":`) {
			t.Fatalf("%s: %s, %v, want it withheld, in %s", name, output, err, input)
		}
		for _, fact := range factsOf(t, input) {
			output, err := e.Replay(t.Context(), module, without(t, input, fact))
			if err == nil && !strings.Contains(string(output), `"passed":[]`) {
				t.Errorf("%s: passes without %v: %s", name, fact, output)
			}
		}
	}
}

// waiting returns the inputs that the tests of an example call _withheld.
func waiting(t *testing.T, file string) map[string]any {
	t.Helper()
	options := []func(*rego.Rego){}
	for _, name := range []string{file, strings.TrimSuffix(file, ".rego") + "_test.rego"} {
		source, err := fs.ReadFile(policies.All(), name)
		if err != nil {
			t.Fatal(err)
		}
		options = append(options, rego.Module(name, string(source)))
	}
	query := fmt.Sprintf("data.rule.%s_test._withheld", path.Base(path.Dir(file)))
	results, err := rego.New(append(options, rego.Query(query))...).Eval(t.Context())
	if err != nil || len(results) != 1 {
		t.Fatalf("%s is undefined: %v", query, err)
	}
	found, ok := results[0].Expressions[0].Value.(map[string]any)
	if !ok || len(found) == 0 {
		t.Fatalf("%s has no inputs", query)
	}
	return found
}

// completed returns an input with all missing fields of the schema added.
func completed(given any) any {
	pod := map[string]any{
		"name": "web-0", "namespace": "shop", "uid": "1", "labels": map[string]any{}, "annotations": map[string]any{},
		"owner": map[string]any{"kind": "", "name": "", "uid": ""}, "node": "", "created": 0, "ready": true,
		"revision":  map[string]any{"current": "", "state": "Unknown"},
		"available": true, "available_since": 1, "permitted": false, "skip_rules": []any{},
		"images": []any{}, "resources": []any{}, "restarts": 0, "conditions": map[string]any{}, "started": 1, "ready_since": 1,
	}
	whole := filled(given, map[string]any{
		"stage": "PreCheck", "now": 0, "operation": map[string]any{
			"id": "a", "type": "update", "cause": "", "since": 0, "request": map[string]any{"method": "", "actor": "", "user": "", "groups": []any{}, "groups_truncated": false},
		},
		"parameters": map[string]any{}, "pod": pod, "pods": []any{}, "permits": []any{},
		"namespace": map[string]any{"name": "shop", "labels": map[string]any{}},
		"counts":    map[string]any{"selected": 3, "desired": 3, "available": 3, "reserved": 0},
		"rule":      map[string]any{"name": "mine", "stage": "PreCheck", "enforcement": "Enforce"},
	}).(map[string]any)
	if owner, reads := whole["owner"]; reads {
		whole["owner"] = filled(owner, map[string]any{
			"kind": "Deployment", "name": "web", "uid": "2", "desired": 3, "revision": "5d4f", "paused": false,
		})
	}
	if node, reads := whole["node"]; reads {
		whole["node"] = filled(node, map[string]any{
			"name": "node-1", "labels": map[string]any{}, "zone": "", "unschedulable": false, "conditions": map[string]any{},
		})
	}
	others := []any{}
	for _, other := range whole["pods"].([]any) {
		others = append(others, filled(other, pod))
	}
	whole["pods"] = others
	return whole
}

// filled returns a document with the missing fields of another document added, at any depth.
func filled(given, from any) any {
	fields, isObject := given.(map[string]any)
	defaults, ok := from.(map[string]any)
	if !isObject || !ok {
		return given
	}
	merged := map[string]any{}
	for name, value := range defaults {
		merged[name] = value
	}
	for name, value := range fields {
		merged[name] = value
		if known, ok := defaults[name]; ok {
			merged[name] = filled(value, known)
		}
	}
	return merged
}
