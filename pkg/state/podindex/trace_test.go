package podindex_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/tracing"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"github.com/podops-dev/podops/test/builders"
	"github.com/podops-dev/podops/test/indexed"
)

// traced collects the changes that a Tracer gets, as text.
type traced struct{ changes []string }

func (c *traced) Changed(before, after *tracing.Pod) {
	c.changes = append(c.changes, shown(before)+" -> "+shown(after))
}

func shown(pod *tracing.Pod) string {
	if pod == nil {
		return "none"
	}
	return fmt.Sprintf("%s/%s of %q, %d annotations, begun %s, deleted %d", pod.Namespace, pod.Name, pod.Workload, len(pod.Annotations),
		pod.Labels[appsv1alpha1.BeganLabelPrefix+"/up"], max(0, pod.Terminating.Unix()-builders.Epoch.Unix()))
}

// TestATracerGetsPodsWhoseBeginIsRecorded shows that a Tracer gets both versions of a pod, with the annotations while
// the pod waits, and no other pod.
func TestATracerGetsPodsWhoseBeginIsRecorded(t *testing.T) {
	index, collected := podindex.NewIndex(func(string) {}), &traced{}
	index.Trace(collected)
	begun := func(pod *builders.PodBuilder) *builders.PodBuilder {
		return pod.Label(appsv1alpha1.BeganLabelPrefix+"/up", "1")
	}
	waiting := builders.MakePod("a").Available().Waiting("up", "upgrade", builders.Epoch)
	pods := indexed.NewPods(t, index)
	pods.Put(
		builders.MakePod("a").Available(),
		builders.MakePod("b").Available().Waiting("up", "upgrade", builders.Epoch),
		begun(waiting).Annotation("note", "x"),
		begun(builders.MakePod("a").Allowed("up", "upgrade")),
		begun(builders.MakePod("a").Allowed("up", "upgrade")).Terminating(builders.Epoch.Add(time.Minute)),
	)
	pods.Remove(builders.MakePod("a"))
	want := []string{
		`default/a of "", 0 annotations, begun , deleted 0 -> default/a of "", 1 annotations, begun 1, deleted 0`,
		`default/a of "", 1 annotations, begun 1, deleted 0 -> default/a of "", 0 annotations, begun 1, deleted 0`,
		`default/a of "", 0 annotations, begun 1, deleted 0 -> default/a of "", 0 annotations, begun 1, deleted 60`,
		`default/a of "", 0 annotations, begun 1, deleted 60 -> none`,
	}
	if diff := cmp.Diff(want, collected.changes); diff != "" {
		t.Errorf("changes differ (-want +got):\n%s", diff)
	}
}

// TestPodsWithoutATraceCostNothing shows that a change of a pod allocates as much with a Tracer as without, unless the
// pod has a trace.
func TestPodsWithoutATraceCostNothing(t *testing.T) {
	allocations := func(tracer podindex.Tracer) float64 {
		index := podindex.NewIndex(func(string) {})
		if tracer != nil {
			index.Trace(tracer)
		}
		store := index.PodStore()
		versions := []*corev1.Pod{
			builders.MakePod("a").Available().Obj(), builders.MakePod("a").Available().Waiting("up", "upgrade", builders.Epoch).Obj(),
		}
		round := 0
		return testing.AllocsPerRun(100, func() {
			round++
			if err := store.Update(versions[round%2]); err != nil {
				t.Fatal(err)
			}
		})
	}
	if off, on := allocations(nil), allocations(&traced{}); off != on {
		t.Errorf("a change allocates %v times without a Tracer and %v times with it", off, on)
	}
}
