package builders_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/podops-dev/podops/pkg/core/lifecycle"
	"github.com/podops-dev/podops/test/builders"
)

// TestPodsAreAtRest checks that the state machine has nothing to change on the pods of the
// builders.
func TestPodsAreAtRest(t *testing.T) {
	later := builders.Epoch.Add(time.Hour)
	for name, pod := range map[string]*corev1.Pod{
		"a new pod":                       builders.MakePod("web-0").Obj(),
		"an available pod":                builders.MakePod("web-0").Available().Obj(),
		"an available pod without a gate": builders.MakePod("web-0").Gateless().Available().Obj(),
		"a pod without PodOps":            builders.MakePod("web-0").Uncontrolled().Gateless().Ready().Obj(),
		"waiting":                         builders.MakePod("web-0").Available().Waiting("a", "upgrade", later).Obj(),
		"preparing, protected": builders.MakePod("web-0").Preparing("a", "upgrade").Ready().
			Finalizer("prot.podopslifecycle.kusionstack.io/lb").Obj(),
		"allowed":  builders.MakePod("web-0").Allowed("a", "upgrade").UnreadyByGate(later).Obj(),
		"finished": builders.MakePod("web-0").Finished("a", "upgrade", later).UnreadyByGate(later).Obj(),
		"complete, traffic not yet on": builders.MakePod("web-0").Complete("a", "upgrade").Ready().
			Expect("Service/default/web", "prot.podopslifecycle.kusionstack.io/lb").Obj(),
		"complete, not ready": builders.MakePod("web-0").Complete("a", "upgrade").Unready(later).Obj(),
		"kept offline":        builders.MakePod("web-0").StayOffline().Gate(false).UnreadyByGate(later).Obj(),
		"terminating":         builders.MakePod("web-0").Allowed("a", "delete").Terminating(later).Obj(),
	} {
		t.Run(name, func(t *testing.T) {
			change := lifecycle.Advance(lifecycle.NewPodFacts(pod), lifecycle.Permits{}, lifecycle.Options{}, later)
			if !change.IsEmpty() {
				t.Errorf("Advance changes the pod: %+v", change)
			}
		})
	}
}

func TestOperatingBegins(t *testing.T) {
	pod := builders.MakePod("web-0").Available().Operating("a", "upgrade").Obj()
	change := lifecycle.Advance(lifecycle.NewPodFacts(pod), lifecycle.Permits{}, lifecycle.Options{}, builders.Epoch)
	if len(change.Transitions) != 1 || change.Transitions[0].Step != lifecycle.StepBegin {
		t.Errorf("transitions are %v, want one begin", change.Transitions)
	}
}

func TestObjReturnsCopies(t *testing.T) {
	builder := builders.MakePod("web-0")
	first := builder.Obj()
	builder.Label("example.com/app", "web")
	first.Labels["example.com/app"] = "db"
	if got := builder.Obj().Labels["example.com/app"]; got != "web" {
		t.Errorf("label of the second pod is %q, want web", got)
	}
}
