package opa_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/open-policy-agent/opa/v1/rego"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/policies"
)

// observer collects observations.
type observer struct {
	mu   sync.Mutex
	seen []opa.Observation
}

func (o *observer) observe(observation opa.Observation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen = append(o.seen, observation)
}

// drain returns the observations since the last call.
func (o *observer) drain() []opa.Observation {
	o.mu.Lock()
	defer o.mu.Unlock()
	seen := o.seen
	o.seen = nil
	return seen
}

func TestObserve(t *testing.T) {
	seen := &observer{}
	options := patient()
	options.Observe = seen.observe
	program, err := newEngine(t, options).Prepare(t.Context(), custom(t, "package rule\n\nallow if 1 / count(input.pods) > 0\n"))
	if err != nil {
		t.Fatal(err)
	}
	one, two := request(0, true), request(1, true)
	for i, pods := range [][]*rule.PodFact{{one.Pod}, {one.Pod, two.Pod}} {
		env := rule.Environment{Pods: pods}
		if _, err := program.Evaluate(t.Context(), program.Stage(), env, []rule.Request{one}); err != nil {
			t.Fatal(err)
		}
		observations := seen.drain()
		if len(observations) != 1 {
			t.Fatalf("%d observations, want 1", len(observations))
		}
		got := observations[0]
		if got.Rule != program.ID() || got.Source != program.Source() || got.Stage != program.Stage() || got.Duration <= 0 {
			t.Errorf("the observation has another rule or source: %+v", got)
		}
		output, err := got.Output()
		if failed := i == 0; (got.Err != nil) != failed || (err != nil) != failed || (output == nil) != failed {
			t.Errorf("with %d pods: error %v, output %s, %v", len(pods), got.Err, output, err)
		}
	}
}

// TestReplay checks that the output of a replay equals the observed one byte for byte.
func TestReplay(t *testing.T) {
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
			output, err := observation.Output()
			replayed, replayErr := e.Replay(t.Context(), module, input)
			if (err == nil) != (replayErr == nil) {
				t.Fatalf("evaluating gave the error %v, replaying %v", err, replayErr)
			}
			if !bytes.Equal(output, replayed) {
				t.Fatalf("the answer was\n%s, it is\n%s", output, replayed)
			}
		}
		if len(seen.drain()) > 0 {
			t.Error("a replay is observed")
		}
	})
}

// TestCustomInputFitsTheSchema checks that the input has exactly the fields of the schema, also for
// a pod without optional fields.
func TestCustomInputFitsTheSchema(t *testing.T) {
	schema := map[string]any{}
	if err := json.Unmarshal(policies.InputSchema(), &schema); err != nil {
		t.Fatal(err)
	}
	query, err := rego.New(rego.Query("[fits, _] := json.match_schema(input.document, input.schema)")).PrepareForEval(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	seen := &observer{}
	options := patient()
	options.Observe = seen.observe
	e := newEngine(t, options)
	rapid.Check(t, func(t *rapid.T) {
		module := drawCustom(t)
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
			document := map[string]any{}
			if err := json.Unmarshal(input, &document); err != nil {
				t.Fatal(err)
			}
			results, err := query.Eval(t.Context(), rego.EvalInput(map[string]any{"document": document, "schema": schema}))
			if err != nil {
				t.Fatal(err)
			}
			if len(results) != 1 || results[0].Bindings["fits"] != true {
				t.Fatalf("does not fit the schema: %s\n%v", input, results)
			}
		}
	})
}

// TestObservationsAreCanonical checks that a decoder that sorts keys reproduces the same bytes.
func TestObservationsAreCanonical(t *testing.T) {
	seen := &observer{}
	options := patient()
	options.Observe = seen.observe
	module := custom(t, `package rule

deny contains {"message": "<&>\u2028é", "details": {"b": {3, 1, 2}, "a": [], "c": {}, "d": {{"x": 1}: [null, true, 1.50]}}}
`)
	program, err := newEngine(t, options).Prepare(t.Context(), module)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := program.Evaluate(t.Context(), program.Stage(), rule.Environment{}, []rule.Request{request(0, true)}); err != nil {
		t.Fatal(err)
	}
	output, err := seen.drain()[0].Output()
	if err != nil {
		t.Fatal(err)
	}
	want := `{"explanation":{"details":[{"a":[],"b":[1,2,3],"c":{},"d":{"{\"x\":1}":[null,true,1.50]}}],` +
		`"messages":["<&>\u2028é"],"retry_after_seconds":[]},"needs_slot":[],"passed":[],"withheld":{"request":"Denied"},"would":{}}`
	if diff := cmp.Diff(want, string(output)); diff != "" {
		t.Errorf("output differs (-want +got):\n%s", diff)
	}
}

// TestOutputIsBounded has a decision that is small in memory and gigabytes as JSON.
func TestOutputIsBounded(t *testing.T) {
	seen := &observer{}
	options := patient()
	options.Observe = seen.observe
	module := custom(t, "package rule\n\ndeny contains {\"message\": \"m\", \"details\": [x | some x in numbers.range(1, 9999); some y in numbers.range(1, 3)]}\n")
	program, err := newEngine(t, options).Prepare(t.Context(), module)
	if err != nil {
		t.Fatal(err)
	}
	result, err := program.Evaluate(t.Context(), program.Stage(), rule.Environment{}, []rule.Request{request(0, true)})
	if err != nil || result.Verdicts["uid-0/PreCheck/a"].Details != `{"omitted":"more than 512 bytes"}` {
		t.Errorf("got %v, %v", result, err)
	}
	if output, err := seen.drain()[0].Output(); err == nil {
		t.Errorf("an output of %d bytes", len(output))
	}
}

func TestReplayRejectsUnreadableInput(t *testing.T) {
	e := newEngine(t, patient())
	for _, input := range []string{"", "{", `{"stage":`} {
		if output, err := e.Replay(t.Context(), compiled(t, labelCheck("ready")), []byte(input)); err == nil {
			t.Errorf("replayed %q: %s", input, output)
		}
	}
	if _, err := e.Replay(t.Context(), compiled(t, labelCheck("ready")), []byte(`{}`)); !errors.Is(err, opa.ErrUndefined) {
		t.Errorf("an input without facts: %v, want ErrUndefined", err)
	}
}

// drawModule returns a rule of any kind.
func drawModule(t *rapid.T) spec.Module {
	if rapid.Bool().Draw(t, "custom") {
		return drawCustom(t)
	}
	module, err := spec.Rule(types.NamespacedName{Namespace: "shop", Name: "web"}, rules().Draw(t, "rule"), nil)
	if err != nil {
		t.Fatal(err)
	}
	return module
}

func drawCustom(t *rapid.T) spec.Module {
	body := rapid.SampledFrom(append(allowBodies(),
		"deny contains sprintf(\"%v\", [input]) if input.pod.available",
		"deny contains {\"message\": p.name, \"details\": p, \"retry_after_seconds\": input.now + 0.5} if some p in input.pods",
		"deny contains input.parameters.x",
		"deny contains \"x\" if 1 / count(input.pods) > 1",
	)).Draw(t, "body")
	rule := rules().Draw(t, "rule")
	rule.LabelCheck, rule.AvailablePolicy, rule.Webhook = nil, nil, nil
	rule.Rego = &appsv1alpha1.RegoRule{Module: body}
	user := spec.Custom{
		Source: "package rule\n\n" + body + "\n", Entry: spec.EntryAllow,
		Parameters: rapid.SampledFrom([]json.RawMessage{nil, []byte(`{}`), []byte(`{"x": 1.5e3}`), []byte(`{"x": "y"}`)}).Draw(t, "parameters"),
	}
	if strings.HasPrefix(body, "deny") {
		user.Entry = spec.EntryDeny
	}
	module, err := spec.Rule(types.NamespacedName{Namespace: "shop", Name: "web"}, rule, &user)
	if err != nil {
		t.Fatal(err)
	}
	return module
}

// allowBodies are modules that read every part of the facts, and absent ones.
func allowBodies() []string {
	return []string{
		"allow if input.pod.labels.tier == \"web\"",
		"allow if not input.pod.labels.tier",
		"allow if not input.pod.permitted",
		"allow if not input.pod.annotations.hold\nreason := sprintf(\"held by %s\", [input.pod.annotations.hold])",
		"allow if count(input.pods) == 0",
		"allow if {\n\tevery pod in input.pods {\n\t\tnot pod.permitted\n\t\tpod.available\n\t}\n}",
		"allow if not blocked\nblocked if {\n\tsome pod in input.pods\n\tpod.owner.kind == \"Deployment\"\n\tpod.available == false\n}",
		"allow if count([p | some p in input.permits; p.at > input.now - 5]) < 2",
		"allow if not frozen\nfrozen if input.namespace.labels.frozen\nfrozen if input.namespace.name == \"x\"",
		"allow if input.counts.available - input.counts.reserved >= input.counts.desired - 1",
		"allow if input.now - input.operation.since > 3\nreason := \"too early\"",
		"allow if not input.operation.type in [\"delete\"]",
		"allow if input.now - input.pod.created > 3",
		"allow if input.pod.node != \"n1\"",
		"allow if not input.pod.ready",
		"allow if 10 / count(input.pods) > 2",
		"default allow := true",
	}
}

func drawSurroundings(t *rapid.T, requests []rule.Request) rule.Environment {
	env := rule.Environment{
		Now: time.Unix(0, rapid.Int64Range(0, 20).Draw(t, "now")), Counts: drawCounts(t),
		Namespace: rule.Namespace{Name: "shop", Labels: rapid.MapOfN(rapid.Just("frozen"), labelValues(), 0, 1).Draw(t, "namespace")},
		Committed: map[types.UID]bool{},
	}
	known := map[types.UID]bool{}
	for _, request := range requests {
		if !known[request.Pod.UID] {
			known[request.Pod.UID] = true
			env.Pods = append(env.Pods, request.Pod)
			env.Committed[request.Pod.UID] = rapid.Bool().Draw(t, "taken")
		}
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "permits") {
		env.Permits = append(env.Permits, rule.Permit{Pod: fmt.Sprint("web-", i), At: time.Unix(0, int64(5*i))})
	}
	return env
}
