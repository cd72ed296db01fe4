package lifecycle_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/test/builders"
)

// TestLabelsOnlyGivesNoPermit shows that a caller that cannot write the gate cannot use a permit,
// because both are written together. (Everything else that Advance does is in the scripts.)
func TestLabelsOnlyGivesNoPermit(t *testing.T) {
	facts := lifecycle.NewPodFacts(builders.MakePod("web-0").Available().Waiting("a", "upgrade", builders.Epoch).Obj())
	permits := lifecycle.Permits{PreCheck: map[string]string{"a": builders.Stamp(builders.Epoch)}}
	if change := lifecycle.Advance(facts, permits, lifecycle.Options{LabelsOnly: true}, builders.Epoch); !change.IsEmpty() {
		t.Errorf("admission changes the pod: %+v", change)
	}
	if change := lifecycle.Advance(facts, permits, lifecycle.Options{}, builders.Epoch); change.Gate == nil || *change.Gate {
		t.Errorf("the controller does not close the gate: %+v", change)
	}
}

// TestPodWithoutLabels shows that a pod without any label is not controlled, and stays unchanged.
func TestPodWithoutLabels(t *testing.T) {
	var bare lifecycle.PodFacts
	if change := lifecycle.Advance(bare, lifecycle.Permits{}, lifecycle.Options{}, builders.Epoch); !change.IsEmpty() {
		t.Errorf("Advance changes the pod: %+v", change)
	}
	old := lifecycle.NewPodFacts(builders.MakePod("web-0").Available().Obj())
	response := lifecycle.AdmitUpdate(old, bare, false, lifecycle.Options{}, builders.Epoch)
	if !response.Change.IsEmpty() || len(response.Denials) > 0 {
		t.Errorf("a request that drops all labels returns %+v", response)
	}
}

func TestApplyLeavesItsArgument(t *testing.T) {
	labels := map[string]string{"a": "1", "b": "2"}
	change := lifecycle.Change{Set: map[string]string{"c": "3"}, Remove: []string{"a", "absent"}}
	if diff := cmp.Diff(map[string]string{"b": "2", "c": "3"}, change.Apply(labels)); diff != "" {
		t.Errorf("labels differ (-want +got):\n%s", diff)
	}
	if len(labels) != 2 {
		t.Errorf("the argument was modified: %v", labels)
	}
	if diff := cmp.Diff(map[string]string{"c": "3"}, change.Apply(nil)); diff != "" {
		t.Errorf("labels of a pod without any differ (-want +got):\n%s", diff)
	}
}
