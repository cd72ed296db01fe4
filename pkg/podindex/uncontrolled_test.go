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

// TestUncontrolledPodsOfAnEarlierRevision has a Deployment whose template got the label during a rollout: one ReplicaSet from before
// has a pod that a user labelled.
func TestUncontrolledPodsOfAnEarlierRevision(t *testing.T) {
	const deployment, earlier types.UID = "deployment", "earlier"
	x := newIndex(t)
	x.SetRule(x.rule("r"))
	x.SetOwner(workload(deployment, "", 3))
	set := workload(earlier, deployment, 3)
	set.TemplateLabels = map[string]string{"app": "web"}
	x.SetOwner(set)
	x.put(member("a", earlier).Available().Obj())
	x.SetUncontrolled("default", earlier, []types.UID{"b", "c"})
	want := rule.Counts{Selected: 3, Desired: 3, Available: 3}
	if got := x.only().Counts; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	left := workload(deployment, "", 3)
	left.TemplateLabels = set.TemplateLabels
	x.SetOwner(left)
	want = rule.Counts{Selected: 1, Desired: 1, Available: 1}
	if got := x.only().Counts; got != want {
		t.Errorf("once the Deployment has no label: %+v, want %+v", got, want)
	}
}
