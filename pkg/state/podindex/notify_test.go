package podindex_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/builders"
)

// TestNotifies tests that the index notifies of every change that a decision or a status depends
// on, and not of every heartbeat of a pod.
func TestNotifies(t *testing.T) {
	idle := func() *builders.PodBuilder { return builders.MakePod("p").Available().Label("app", "web") }
	waiting := func() *builders.PodBuilder { return idle().Waiting("a", "upgrade", builders.Epoch) }
	one := []string{"default"}
	for name, tc := range map[string]struct {
		before *builders.PodBuilder
		change func(*index)
		want   []string
	}{
		"a new pod":                     {before: builders.MakePod("q"), change: func(x *index) { x.put(idle().Obj()) }, want: one},
		"a pod is deleted":              {before: idle(), change: func(x *index) { x.remove(idle().Obj()) }, want: one},
		"a heartbeat":                   {before: idle(), change: func(x *index) { x.put(idle().Annotation("beat", "1").Obj()) }},
		"a heartbeat of one that waits": {before: waiting(), change: func(x *index) { x.put(waiting().Obj()) }, want: one},
		"a pod begins to wait":          {before: idle(), change: func(x *index) { x.put(waiting().Obj()) }, want: one},
		"a pod becomes unready":         {before: idle(), change: func(x *index) { x.put(idle().Unready(builders.Epoch).Obj()) }, want: one},
		"a pod terminates":              {before: builders.MakePod("p"), change: func(x *index) { x.put(builders.MakePod("p").Terminating(builders.Epoch).Obj()) }, want: one},
		"a pod is adopted":              {before: builders.MakePod("p"), change: func(x *index) { x.put(ownedPod("sts", 0).UID("p-uid").Obj()) }, want: one},
		"an unknown pod is deleted":     {before: idle(), change: func(x *index) { x.remove(builders.MakePod("q").Obj()) }},
		"a list":                        {before: idle(), change: func(x *index) { x.list(idle().Obj()) }, want: one},
		"a rule is edited":              {before: idle(), change: func(x *index) { r := x.rule("r"); r.Generation = 2; x.SetRule(r) }, want: one},
		"a status is written":           {before: idle(), change: func(x *index) { r := x.rule("r"); r.Status.Waiting = 1; x.SetRule(r) }},
		"a rule is deleted":             {before: idle(), change: func(x *index) { x.DeleteRule(types.NamespacedName{Namespace: "default", Name: "r"}) }, want: one},
	} {
		t.Run(name, func(t *testing.T) {
			x := newIndex(t)
			x.SetRule(x.rule("r"))
			x.put(tc.before.Obj())
			x.notified = nil
			tc.change(x)
			if diff := cmp.Diff(tc.want, x.notified); diff != "" {
				t.Errorf("notifications differ (-want +got):\n%s", diff)
			}
		})
	}
}

// TestGenerationIsPartOfARequest shows that a verdict counts for one value of the label only.
func TestGenerationIsPartOfARequest(t *testing.T) {
	x := newIndex(t)
	since := builders.Epoch.Add(time.Minute)
	x.put(builders.MakePod("p").Available().Waiting("a", "upgrade", since).Obj())
	request := x.Snapshot("default", nil).Waiting[0]
	if request.Attempt != builders.Stamp(since) || !request.Since.Equal(since) || request.Type != "upgrade" ||
		request.Stage != appsv1alpha1.StagePreCheck {
		t.Errorf("got %+v", request)
	}
}
