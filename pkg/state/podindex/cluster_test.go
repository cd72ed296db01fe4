package podindex_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/builders"
)

// step makes a change and compares the namespaces that the index notifies of.
func (x *index) step(t *testing.T, what string, change func(), want ...string) {
	t.Helper()
	x.notified = nil
	change()
	slices.Sort(x.notified)
	if diff := cmp.Diff(want, x.notified); diff != "" {
		t.Errorf("%s: notifications differ (-want +got):\n%s", what, diff)
	}
}

func TestNamespaces(t *testing.T) {
	x := newIndex(t)
	labels := func(what string, want map[string]string) {
		t.Helper()
		if diff := cmp.Diff(want, x.Snapshot("default", nil).NamespaceLabels); diff != "" {
			t.Errorf("%s: labels differ (-want +got):\n%s", what, diff)
		}
	}
	x.step(t, "a namespace with nothing in it", func() { x.SetNamespace("default", map[string]string{"team": "shop"}) })
	labels("with nothing in it", map[string]string{"team": "shop"})
	if got := x.Namespaces(); len(got) != 0 {
		t.Errorf("there are facts of %v", got)
	}
	x.put(builders.MakePod("p").Obj())
	x.step(t, "the same labels", func() { x.SetNamespace("default", map[string]string{"team": "shop"}) })
	x.step(t, "an alert", func() { x.SetNamespace("default", map[string]string{"team": "shop", "alert": ""}) }, "default")
	labels("an alert", map[string]string{"team": "shop", "alert": ""})
	x.step(t, "another namespace", func() { x.SetNamespace("other", map[string]string{"team": "shop"}) })
	x.step(t, "no labels", func() { x.SetNamespace("default", nil) }, "default")
	labels("seen without labels", map[string]string{})
	x.step(t, "no labels, once more", func() { x.SetNamespace("default", map[string]string{}) })
	x.step(t, "it is gone", func() { x.DeleteNamespace("default") }, "default")
	labels("not seen", nil)
	x.step(t, "it is gone, once more", func() { x.DeleteNamespace("default") })
	x.step(t, "it is there again, without labels", func() { x.SetNamespace("default", nil) }, "default")
}

func policyObject(name string, generation int64) *appsv1alpha1.PodTransitionPolicy {
	return &appsv1alpha1.PodTransitionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Generation: generation}}
}

// TestPolicies tests that the namespaces that refer to a policy are notified.
func TestPolicies(t *testing.T) {
	x := newIndex(t)
	in := func(namespace string, rule *appsv1alpha1.PodTransitionRule) *appsv1alpha1.PodTransitionRule {
		rule.Namespace = namespace
		return rule
	}
	policies := func(what, namespace string, want ...string) {
		t.Helper()
		var got []string
		for name, object := range x.Snapshot(namespace, nil).Policies {
			got = append(got, name)
			if object.Name != name {
				t.Errorf("%s: %s stands for %s", what, object.Name, name)
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: policies of %s differ (-want +got):\n%s", what, namespace, diff)
		}
	}
	x.step(t, "no rule refers to it", func() { x.SetPolicy(policyObject("freeze", 1)) })
	x.SetRule(in("a", x.customRule("one", "freeze", "quota", "freeze")))
	x.SetRule(in("a", x.customRule("two", "freeze")))
	x.SetRule(in("b", x.customRule("one", "quota")))
	x.SetRule(in("c", x.customRule("own")))
	policies("one of two exists", "a", "freeze")
	policies("it does not exist", "b")

	x.step(t, "it comes to exist", func() { x.SetPolicy(policyObject("quota", 1)) }, "a", "b")
	policies("both exist", "a", "freeze", "quota")
	policies("it exists", "b", "quota")
	policies("a rule with a module of its own", "c")
	policies("a namespace of which nothing is known", "nowhere")

	x.step(t, "only its status changes", func() {
		object := policyObject("quota", 1)
		object.Status.UserCount = 2
		x.SetPolicy(object)
	})
	if got := x.Snapshot("b", nil).Policies["quota"].Status.UserCount; got != 2 {
		t.Errorf("the newest object has %d users, got %d", 2, got)
	}
	x.step(t, "it is edited", func() { x.SetPolicy(policyObject("quota", 2)) }, "a", "b")
	x.step(t, "it is deleted and created between two events", func() {
		object := policyObject("quota", 2)
		object.UID = "another"
		x.SetPolicy(object)
	}, "a", "b")

	edited := in("a", x.customRule("one", "quota"))
	edited.Generation = 2
	x.step(t, "a rule changes to another policy", func() { x.SetRule(edited) }, "a")
	x.step(t, "the other rule still uses it", func() { x.SetPolicy(policyObject("freeze", 2)) }, "a")
	x.step(t, "the last user is deleted", func() { x.DeleteRule(types.NamespacedName{Namespace: "a", Name: "two"}) }, "a")
	x.step(t, "no rule refers to it any more", func() { x.SetPolicy(policyObject("freeze", 3)) })
	policies("no rule refers to it any more", "a", "quota")
	x.step(t, "a rule that never was is deleted", func() { x.DeleteRule(types.NamespacedName{Namespace: "a", Name: "two"}) }, "a")

	importing := policyObject("quota", 3)
	importing.Spec.Imports = []string{"zones"}
	x.step(t, "it imports another", func() { x.SetPolicy(importing) }, "a", "b")
	zones := policyObject("zones", 1)
	zones.Spec.Imports = []string{"days"}
	x.step(t, "its import comes to exist, with one of its own", func() { x.SetPolicy(zones) }, "a", "b")
	x.step(t, "an import of its import comes to exist", func() { x.SetPolicy(policyObject("days", 1)) }, "a", "b")
	policies("it has imports", "b", "days", "quota", "zones")
	x.step(t, "an import of its import is edited", func() { x.SetPolicy(policyObject("days", 2)) }, "a", "b")
	x.step(t, "its import is deleted", func() { x.DeletePolicy("zones") }, "a", "b")
	policies("its import is deleted", "b", "quota")
	x.step(t, "what only its import imported is edited", func() { x.SetPolicy(policyObject("days", 3)) })

	x.step(t, "it is deleted", func() { x.DeletePolicy("quota") }, "a", "b")
	policies("it is deleted", "b")
	x.step(t, "it is deleted, once more", func() { x.DeletePolicy("quota") })
}
