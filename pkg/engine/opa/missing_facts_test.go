package opa_test

import (
	"encoding/json"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
)

// TestNothingPassesWhenAFactIsMissing removes each fact of the request, of another pod and of the
// environment: no rule then passes a request, or grants it a slot, that it withheld with all facts,
// no rule has more slots, and no rule makes a call that it would not have made.
func TestNothingPassesWhenAFactIsMissing(t *testing.T) {
	seen := &observer{}
	options := patient()
	options.Observe = seen.observe
	e := newEngine(t, options)
	rapid.Check(t, func(t *rapid.T) {
		module := drawModule(t)
		program, err := e.Prepare(t.Context(), module)
		if err != nil {
			t.Fatal(err)
		}
		requests := drawRequests(t, program.Stage())
		seen.drain()
		if _, err := program.Evaluate(t.Context(), program.Stage(), drawSurroundings(t, requests), requests); err != nil {
			t.Fatal(err)
		}
		for _, observation := range seen.drain() {
			input, err := observation.Input()
			if err != nil {
				t.Fatal(err)
			}
			replay := func(input json.RawMessage) decided {
				output, err := e.Replay(t.Context(), module, input)
				if err != nil {
					return decided{} // nothing passes
				}
				return readDecided(t, output)
			}
			before := replay(input)
			for _, fact := range factsOf(t, input) {
				after := replay(without(t, input, fact))
				if opened := before.opens(after); opened != "" {
					t.Fatalf("without %v: %s\n%s\nin %s", fact, opened, sourceOf(module), input)
				}
			}
		}
	})
}

// TestCustomModulesAreNotEvaluatedWithoutAllFacts has a module that negates a fact which is
// missing.
func TestCustomModulesAreNotEvaluatedWithoutAllFacts(t *testing.T) {
	e := newEngine(t, patient())
	module := custom(t, "package rule\n\nallow if count(input.pods) + count(input.permits) > 0\n")
	observed := &observer{}
	options := patient()
	options.Observe = observed.observe
	program, err := newEngine(t, options).Prepare(t.Context(), module)
	if err != nil {
		t.Fatal(err)
	}
	env := rule.Environment{
		Pods:    []*rule.PodFact{request(1, true).Pod, request(2, true).Pod},
		Permits: []rule.Permit{{Pod: "web-3"}, {Pod: "web-4"}},
	}
	if _, err := program.Evaluate(t.Context(), program.Stage(), env, []rule.Request{request(0, true)}); err != nil {
		t.Fatal(err)
	}
	input, err := observed.drain()[0].Input()
	if err != nil {
		t.Fatal(err)
	}
	facts := factsOf(t, input)
	// 48 of the input and its pod, 19 of each other pod, 2 of each permit.
	if want := 48 + 2*19 + 2*2; len(facts) != want {
		t.Fatalf("%d facts were found, want %d: %v", len(facts), want, facts)
	}
	for _, fact := range facts {
		if output, err := e.Replay(t.Context(), module, without(t, input, fact)); err == nil {
			t.Errorf("answered without %v: %s", fact, output)
		}
	}
}

// decided is the part of the decision document that can let a request pass.
type decided struct {
	Passed []string `json:"passed"`
	Takes  []string `json:"needs_slot"`
	Calls  []string `json:"calls"`
	Room   struct {
		Slots int `json:"slots"`
	} `json:"capacity"`
}

func readDecided(t *rapid.T, output json.RawMessage) decided {
	read := decided{}
	if err := json.Unmarshal(output, &read); err != nil {
		t.Fatal(err)
	}
	return read
}

// opens names a permission that after has and before has not; "" without such a permission.
func (d decided) opens(after decided) string {
	for _, key := range slices.Concat(after.Passed, after.Takes) {
		if !slices.Contains(d.Passed, key) && !slices.Contains(d.Takes, key) {
			return "request " + key + " goes"
		}
	}
	for _, key := range after.Calls {
		if !slices.Contains(d.Calls, key) {
			return "a service is called about request " + key
		}
	}
	if after.Room.Slots > d.Room.Slots {
		return "there are more slots"
	}
	return ""
}

// factsOf returns the paths of all facts of an input. Labels, annotations and parameters, and the
// fields that a rule may omit, are parts of one fact.
func factsOf(t fataler, input json.RawMessage) [][]any {
	var document any
	if err := json.Unmarshal(input, &document); err != nil {
		t.Fatal(err)
	}
	return factsBelow(document, nil)
}

func factsBelow(value any, path []any) [][]any {
	found := [][]any{}
	switch value := value.(type) {
	case map[string]any:
		for name, item := range value {
			at := append(slices.Clone(path), name)
			if slices.Equal(path, []any{"rule"}) && !slices.Contains([]string{"name", "stage", "enforcement", "failure_policy"}, name) {
				continue
			}
			found = append(found, at)
			if !slices.Contains([]string{"labels", "annotations", "parameters"}, name) {
				found = append(found, factsBelow(item, at)...)
			}
		}
	case []any:
		for i, item := range value {
			found = append(found, factsBelow(item, append(slices.Clone(path), i))...)
		}
	}
	return found
}

// without returns the input with one fact removed.
func without(t fataler, input json.RawMessage, path []any) json.RawMessage {
	var document any
	if err := json.Unmarshal(input, &document); err != nil {
		t.Fatal(err)
	}
	at := document
	for _, step := range path[:len(path)-1] {
		switch step := step.(type) {
		case string:
			at = at.(map[string]any)[step]
		case int:
			at = at.([]any)[step]
		}
	}
	delete(at.(map[string]any), path[len(path)-1].(string))
	encoded, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}

type fataler interface{ Fatal(arguments ...any) }

func sourceOf(module spec.Module) string {
	if module.Custom != nil {
		return module.Custom.Source
	}
	return string(module.Literal)
}
