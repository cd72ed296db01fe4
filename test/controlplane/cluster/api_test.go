package cluster

import (
	"encoding/json"
	"strings"
	"testing"
)

const (
	readyNode    = `{"metadata":{"name":"node-1"},"status":{"conditions":[{"type":"Ready","status":"True"}]}}`
	taintedNode  = `{"metadata":{"name":"node-1"},"spec":{"taints":[{"key":"node.kubernetes.io/not-ready"}]},"status":{"conditions":[{"type":"Ready","status":"True"}]}}`
	notReadyNode = `{"metadata":{"name":"node-1"},"status":{"conditions":[{"type":"MemoryPressure","status":"True"},{"type":"Ready","status":"Unknown"}]}}`
)

func TestNodesAreUsable(t *testing.T) {
	tests := map[string]struct {
		items string
		want  string // part of the error; "" for none
	}{
		"all nodes ready":          {readyNode, ""},
		"a missing node":           {"", "0 of 1 nodes"},
		"a node with a taint":      {taintedNode, "not-ready"},
		"a node that is not ready": {notReadyNode, "node-1 is not ready"},
		"a surplus node":           {readyNode + "," + readyNode, "2 of 1 nodes"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var list nodeList
			if err := json.Unmarshal([]byte(`{"items":[`+tc.items+`]}`), &list); err != nil {
				t.Fatal(err)
			}
			err := list.usable(1)
			if tc.want == "" && err != nil {
				t.Errorf("complains: %v", err)
			}
			if tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("want an error with %q, got %v", tc.want, err)
			}
		})
	}
}
