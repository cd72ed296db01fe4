package podindex_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/pkg/rule"
)

// TestUncontrolledPods has a StatefulSet of three, two pods of which have the label.
func TestUncontrolledPods(t *testing.T) {
	const sts types.UID = "sts"
	missing, whole := rule.Counts{Selected: 2, Desired: 3, Available: 2}, rule.Counts{Selected: 3, Desired: 3, Available: 3}
	x := newIndex(t)
	x.SetRule(x.rule("r"))
	x.SetOwner(workload(sts, "", 3))
	x.put(member("a", sts).Available().Obj())
	x.put(member("b", sts).Available().Obj())
	check := func(when string, want rule.Counts) {
		t.Helper()
		if got := x.only().Counts; got != want {
			t.Errorf("%s: %+v, want %+v", when, got, want)
		}
	}
	other := member("c", sts).Available().Obj()
	check("before it is known", missing)
	x.SetUncontrolled("default", sts, []types.UID{other.UID})
	check("an available pod without the label", whole)
	x.SetUncontrolled("default", sts, nil)
	check("once it is unavailable", missing)
	x.SetUncontrolled("default", sts, []types.UID{other.UID})
	x.put(other)
	check("once it has the label", whole)
	x.SetUncontrolled("default", sts, []types.UID{other.UID})
	check("a list from before it got the label", whole)
	x.remove(other)
	check("once it is deleted", missing)
	x.SetUncontrolled("default", "unknown", []types.UID{"d"})
	check("a pod of a workload that the rule does not cover", missing)
}
