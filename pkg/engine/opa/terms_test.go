package opa_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/engine/opa"
)

// TestInputIsSorted copies each part of the input of a user's module, as a with modifier does, while
// another goroutine reads its keys in order, for the race detector. Evaluations share the parts, and
// the decision log reads the input of an evaluation that runs on after its time.
func TestInputIsSorted(t *testing.T) {
	labels := map[string]string{}
	for i := range 30 {
		labels[fmt.Sprintf("label-%d", i)] = "true"
	}
	waiting := request(0, true)
	waiting.Pod.Labels, waiting.Pod.Annotations = labels, labels
	cached, committed, unversioned := request(1, true).Pod, request(2, true).Pod, request(3, true).Pod
	cached.Labels, committed.Labels, unversioned.Labels, unversioned.Version = labels, labels, labels, ""
	document := []byte(`{"b": {"d": 1, "c": [{"f": 1, "e": 2}]}, "a": 3}`)
	for range 20 {
		input, err := opa.CustomInput(newEngine(t, opa.Options{}), document, document, rule.Environment{
			Now:       time.Unix(1, 0),
			Namespace: rule.Namespace{Name: "shop", Labels: labels},
			Counts:    rule.Counts{Selected: 2},
			Permits:   []rule.Permit{{Pod: "web-1"}},
			Pods:      []*rule.PodFact{waiting.Pod, cached, committed, unversioned},
			Committed: map[types.UID]bool{committed.UID: true},
		}, waiting)
		if err != nil {
			t.Fatal(err)
		}
		whole := sync.WaitGroup{}
		whole.Go(func() { _ = input.String() })
		whole.Go(func() {
			if copied := input.Copy(); ast.Compare(copied, input) != 0 {
				t.Errorf("the copy is %v, want %v", copied, input)
			}
		})
		whole.Wait()
	}
}
