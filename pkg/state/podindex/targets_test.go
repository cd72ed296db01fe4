package podindex_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/builders"
)

// TestTargetsAreTheFirstNames lets pods come and go around the bound of the list.
func TestTargetsAreTheFirstNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := newIndex(t)
		x.SetRule(x.rule("r"))
		names := map[string]bool{}
		come := func(name string) {
			names[name] = true
			x.put(builders.MakePod(name).Label("app", "web").Obj())
		}
		for i := range appsv1alpha1.MaxStatusTargets - 2 {
			come(fmt.Sprintf("p-%03d", 2*i))
		}
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			name := fmt.Sprintf("p-%03d", rapid.IntRange(0, 2*appsv1alpha1.MaxStatusTargets+10).Draw(t, "name"))
			if names[name] {
				delete(names, name)
				x.remove(builders.MakePod(name).Label("app", "web").Obj())
			} else {
				come(name)
			}
			want := slices.Sorted(maps.Keys(names))
			want = want[:min(len(want), appsv1alpha1.MaxStatusTargets)]
			got := x.Targets(types.NamespacedName{Namespace: "default", Name: "r"})
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("targets differ (-want +got):\n%s", diff)
			}
		}
	})
}

// TestTargetsAreNotModified tests that a status that was built from them does not change.
func TestTargetsAreNotModified(t *testing.T) {
	x := newIndex(t)
	x.SetRule(x.rule("r"))
	key := types.NamespacedName{Namespace: "default", Name: "r"}
	for _, name := range []string{"b", "d"} {
		x.put(builders.MakePod(name).Label("app", "web").Obj())
	}
	before := x.Targets(key)
	x.put(builders.MakePod("a").Label("app", "web").Obj())
	x.remove(builders.MakePod("b").Label("app", "web").Obj())
	if diff := cmp.Diff([]string{"b", "d"}, before); diff != "" {
		t.Errorf("the list that was handed out has changed (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a", "d"}, x.Targets(key)); diff != "" {
		t.Errorf("targets differ (-want +got):\n%s", diff)
	}
	if got := x.Targets(types.NamespacedName{Namespace: "default", Name: "none"}); got != nil {
		t.Errorf("targets of a rule that is not: %v", got)
	}
}
