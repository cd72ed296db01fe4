package podindex_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/test/builders"
)

// TestPodsInTheWay are the first pods that are unavailable or reserved; none are listed while
// no pod waits.
func TestPodsInTheWay(t *testing.T) {
	x := newIndex(t)
	object := x.rule("web")
	x.SetRule(object)
	x.put(builders.MakePod("web-0").Label("app", "web").Obj())
	if got := x.only().Unavailable; got != nil {
		t.Errorf("no pod waits, and %q are in the way", got)
	}
	reserved := waitingPod("web-1").Label("app", "web").Obj()
	object = object.DeepCopy()
	object.Status.Permits = &appsv1alpha1.PermitRecord{Reserved: []appsv1alpha1.ReservedPod{
		{UID: reserved.UID, Name: "web-1", ResourceVersion: x.put(reserved)},
	}}
	object.ResourceVersion = x.next()
	x.SetRule(object)
	if diff := cmp.Diff([]string{"web-0", "web-1"}, x.only().Unavailable); diff != "" {
		t.Errorf("pods in the way differ (-want +got):\n%s", diff)
	}
	for i := range 10 {
		x.put(builders.MakePod(fmt.Sprintf("web-%d", i+2)).Label("app", "web").Obj())
	}
	if got := x.only().Unavailable; len(got) != rule.MaxBlockingPods {
		t.Errorf("%d pods are named, want %d", len(got), rule.MaxBlockingPods)
	}
	x.put(builders.MakePod("web-0").Label("app", "web").Available().Obj())
	if got := x.only().Unavailable[0]; got != "web-1" {
		t.Errorf("the first one is %s, and web-0 has become available", got)
	}
}

// TestLeftovers carry an annotation about waiting, and do not wait.
func TestLeftovers(t *testing.T) {
	x := newIndex(t)
	key := appsv1alpha1.DetailAnnotationPrefix + "/web"
	steps := []struct {
		what string
		pod  *builders.PodBuilder
		want []string
	}{
		{"it waits", waitingPod("web-0").Annotation(key, "{}"), nil},
		{"it does not wait any more", builders.MakePod("web-0").Available().Annotation(key, "{}"), []string{"web-0"}},
		{"the annotation is gone", builders.MakePod("web-0").Available(), nil},
		{"it is terminating", builders.MakePod("web-0").Annotation(key, "{}").Finalizer("a/b").Terminating(builders.Epoch), nil},
	}
	for _, step := range steps {
		x.put(step.pod.Obj())
		var got []string
		for _, pod := range x.Snapshot("default", nil).Leftover {
			got = append(got, pod.Name)
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s: leftovers differ (-want +got):\n%s", step.what, diff)
		}
	}
}
