package opa_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/podops-dev/podops/pkg/core/rule"
)

// boundRequest returns a request for a pod on a node.
func boundRequest(node string) rule.Request {
	made := request(0, true)
	made.Pod.Node = node
	return made
}

// TestNode shows what modules that read the node find in it. Others have none.
func TestNode(t *testing.T) {
	const whole = "package rule\n\ndeny contains {\"message\": \"m\", \"details\": input.node}\n"
	known := rule.Environment{Nodes: map[string]*rule.Node{
		"n1": {Labels: map[string]string{"topology.kubernetes.io/zone": "a"}, Unschedulable: true, Conditions: map[string]string{"Ready": "Unknown"}}, "n2": {},
	}}
	for node, want := range map[string]string{
		"n1": `{"conditions":{"Ready":"Unknown"},"labels":{"topology.kubernetes.io/zone":"a"},"name":"n1","unschedulable":true,"zone":"a"}`,
		"n2": `{"conditions":{},"labels":{},"name":"n2","unschedulable":false,"zone":""}`,
		"":   `{"conditions":{},"labels":{},"name":"","unschedulable":false,"zone":""}`,
	} {
		if got := verdictFor(t, patient(), custom(t, whole), known, boundRequest(node)); got.Details != want {
			t.Errorf("%q: %s, want %s", node, got.Details, want)
		}
	}
	without := custom(t, "package rule\n\ndeny contains sprintf(\"%d counts\", [count(input.counts)])\n")
	if got := verdictFor(t, patient(), without, known, boundRequest("n1")); got.Message != "4 counts" {
		t.Errorf("a module that does not read the node: %+v", got)
	}
}

// TestUnknownNodesWithhold shows that no pod passes a module that reads the node while it is not known.
func TestUnknownNodesWithhold(t *testing.T) {
	reads := custom(t, "package rule\n\nallow if not input.node.unschedulable\n")
	got := verdictFor(t, patient(), reads, rule.Environment{Nodes: map[string]*rule.Node{"other": {}}}, boundRequest("n1"))
	if want := "node n1 is not known, and the module reads input.node"; got.Outcome != 0 || got.Message != want {
		t.Errorf("%+v, want %q", got, want)
	}
	others := custom(t, "package rule\n\nallow if input.pod.node == \"n1\"\n")
	if got := verdictFor(t, patient(), others, rule.Environment{}, boundRequest("n1")); got.Outcome != rule.Passed {
		t.Errorf("a module that does not read it: %+v", got)
	}
}

// TestRecordedWithoutNode shows that an input which was recorded for a module that does not read the node is not replayed with one
// that does.
func TestRecordedWithoutNode(t *testing.T) {
	input, err := json.Marshal(completed(map[string]any{}))
	if err != nil {
		t.Fatal(err)
	}
	_, err = newEngine(t, patient()).Replay(t.Context(), custom(t, "package rule\n\nallow if not input.node.unschedulable\n"), input)
	if err == nil || !strings.Contains(err.Error(), "the input was recorded without input.node") {
		t.Errorf("got %v", err)
	}
}
