package plan_test

import (
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/podops-dev/podops/pkg/resourceconsist/plan"
)

// provider holds the servers of a provider, and whether they take traffic.
type provider map[string]bool

func (p provider) items() []item {
	var items []item
	for id, takes := range p {
		items = append(items, there(id, strconv.FormatBool(takes)))
	}
	return items
}

// apply carries out a plan. The ids in failing do not change.
func (p provider) apply(diff plan.Diff[string], failing map[string]bool) {
	for _, item := range slices.Concat(diff.Off, diff.Create, diff.Update) {
		if !failing[item.ID] {
			p[item.ID] = item.Value == "true"
		}
	}
	for _, item := range diff.Delete {
		if !failing[item.ID] {
			delete(p, item.ID)
		}
	}
}

// pods draws pods and the items that are expected of them.
func pods(t *rapid.T) (map[string]plan.Pod, []item) {
	all, expected := map[string]plan.Pod{}, []item(nil)
	for i := range rapid.IntRange(0, 8).Draw(t, "pods") {
		name := "p" + strconv.Itoa(i)
		pod := plan.Pod{
			Selected: rapid.Bool().Draw(t, "selected"), Controlled: rapid.Bool().Draw(t, "controlled"),
			Terminating: rapid.Bool().Draw(t, "terminating"), Preparing: rapid.Bool().Draw(t, "preparing"),
			Has: rapid.Bool().Draw(t, "has"), Expects: rapid.Bool().Draw(t, "expects"),
		}
		pod.WantsTraffic = pod.Controlled && !pod.Terminating && !pod.Preparing && rapid.Bool().Draw(t, "ready")
		all[name] = pod
		switch {
		case pod.Selected && pod.WantsTraffic:
			expected = append(expected, on(name, "true"))
		case pod.Selected && rapid.Bool().Draw(t, "kept while off"):
			expected = append(expected, off(name, "false"))
		}
	}
	return all, expected
}

func truth(t *rapid.T) provider {
	p := provider{}
	for i := range 10 {
		if rapid.Bool().Draw(t, "there") {
			p["p"+strconv.Itoa(i)] = rapid.Bool().Draw(t, "takes traffic")
		}
	}
	return p
}

func drawFailing(t *rapid.T) map[string]bool {
	failing := map[string]bool{}
	for i := range 10 {
		failing["p"+strconv.Itoa(i)] = rapid.Bool().Draw(t, "fails")
	}
	return failing
}

// TestFinalizersFollowTheProvider checks that, for failures of any items, finalizers
// follow the state of the provider, and no pod depends on another.
func TestFinalizersFollowTheProvider(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all, expected := pods(t)
		provider, failing := truth(t), drawFailing(t)
		provider.apply(plan.Between(expected, provider.items(), equal), failing)
		traffic := plan.ClassifyTraffic(plan.Between(expected, provider.items(), equal))
		for name, pod := range all {
			got := plan.Protect(pod, traffic.Of(name))
			takes := provider[name]
			switch {
			case got.Add && !takes:
				t.Fatalf("%s gets a finalizer though it takes no traffic: %+v", name, pod)
			case got.Remove && takes:
				t.Fatalf("%s loses its finalizer though it takes traffic: %+v", name, pod)
			case got.Add && got.Remove:
				t.Fatalf("%s gets and loses its finalizer: %+v", name, pod)
			case !failing[name] && got.Pending:
				t.Fatalf("%s waits though nothing of it failed: %+v %v", name, pod, traffic.Of(name))
			}
		}
	})
}

// TestAPlanIsAFixedPoint checks that no change is due after a plan was carried out.
func TestAPlanIsAFixedPoint(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, expected := pods(t)
		provider := truth(t)
		provider.apply(plan.Between(expected, provider.items(), equal), nil)
		again := plan.Between(expected, provider.items(), equal)
		if changes := len(again.Off) + len(again.Create) + len(again.Update) + len(again.Delete); changes > 0 {
			t.Fatalf("%d changes are left: %+v", changes, again)
		}
	})
}

// TestAPlanDoesNotDependOnOrder checks that the order of the arguments does not matter.
func TestAPlanDoesNotDependOnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, expected := pods(t)
		current := truth(t).items()
		first := plan.Between(expected, current, equal)
		second := plan.Between(rapid.Permutation(expected).Draw(t, "expected"), rapid.Permutation(current).Draw(t, "current"), equal)
		if diff := cmp.Diff(first, second); diff != "" {
			t.Fatalf("another order, another plan:\n%s", diff)
		}
	})
}
