package podindex_test

import (
	"testing"

	"github.com/podops-dev/podops/test/builders"
)

// TestStrays has a StatefulSet of two pods, and a pod without a controller beside it.
func TestStrays(t *testing.T) {
	orphan := func() *builders.PodBuilder { return builders.MakePod("orphan").Label("app", "web").Available() }
	for name, tc := range map[string]struct {
		pod   *builders.PodBuilder
		alone bool // without the StatefulSet
		want  int
	}{
		"it serves":                           {pod: orphan(), want: 3},
		"it is off traffic, and nothing runs": {pod: orphan().UnreadyByGate(builders.Epoch), want: 2},
		"it is unready":                       {pod: orphan().Unready(builders.Epoch), want: 2},
		"an operation may run on it":          {pod: orphan().Allowed("x", "upgrade").Unready(builders.Epoch), want: 3},
		"it waits for an operation":           {pod: orphan().Waiting("x", "upgrade", builders.Epoch).Unready(builders.Epoch), want: 3},
		"no workload is desired beside it":    {pod: orphan().Unready(builders.Epoch), alone: true, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			x := newIndex(t)
			x.SetRule(x.rule("r"))
			if !tc.alone {
				x.SetOwner(workload("sts", "", 2))
				x.put(member("a", "sts").Obj())
				x.put(member("b", "sts").Obj())
			}
			x.put(tc.pod.Obj())
			if got := x.only().Counts.Desired; got != tc.want {
				t.Errorf("%d desired, want %d", got, tc.want)
			}
			x.remove(tc.pod.Obj())
			if got, want := x.only().Counts.Desired, map[bool]int{false: 2, true: 0}[tc.alone]; got != want {
				t.Errorf("%d desired after it has gone, want %d", got, want)
			}
		})
	}
}
