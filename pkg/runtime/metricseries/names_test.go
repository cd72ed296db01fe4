package metricseries_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/podops-dev/podops/pkg/runtime/metricseries"
)

func TestNamesBeyondTheLimitAreOther(t *testing.T) {
	names := metricseries.NewNames(metricseries.Limits{PerNamespace: 2, InAll: 3})
	for _, step := range []struct{ namespace, name, want string }{
		{"loud", "a", "a"},
		{"loud", "b", "b"},
		{"loud", "c", metricseries.Other},
		{"loud", "a", "a"},
		{"quiet", "a", "a"},
		{"quiet", "b", metricseries.Other}, // no place is left in all
	} {
		if got := names.Value(step.namespace, step.name); got != step.want {
			t.Errorf("%s/%s is %q, want %q", step.namespace, step.name, got, step.want)
		}
	}
	if got := names.Lookup("loud", "a"); got != "a" {
		t.Errorf("a name with a place is %q", got)
	}
	if got := names.Lookup("new", "a"); got != metricseries.Other || names.Len() != 3 {
		t.Errorf("a name that was looked up is %q, and %d have a place", got, names.Len())
	}
	if names.Release("loud", "c") {
		t.Error("a name without a place was released")
	}
	if !names.Release("loud", "a") || names.Value("loud", "c") != "c" {
		t.Error("the place of a released name is not free")
	}
}

func TestALongNameIsOther(t *testing.T) {
	names := metricseries.NewNames(metricseries.Limits{PerNamespace: 9, InAll: 9})
	if got := names.Value("shop", strings.Repeat("a", 1000)); got != metricseries.Other || names.Len() != 0 {
		t.Errorf("a name of 1000 bytes is a label value of %d bytes, and %d names have a place", len(got), names.Len())
	}
}

// TestNamesStayWithinTheirLimits shows this for any sequence of calls, and that released names are removed.
func TestNamesStayWithinTheirLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := metricseries.Limits{PerNamespace: rapid.IntRange(1, 4).Draw(t, "per namespace"), InAll: rapid.IntRange(1, 8).Draw(t, "in all")}
		names := metricseries.NewNames(limits)
		placed := map[[2]string]bool{}
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			namespace := fmt.Sprint("ns", rapid.IntRange(0, 3).Draw(t, "namespace"))
			name := fmt.Sprint("n", rapid.IntRange(0, 6).Draw(t, "name"))
			key := [2]string{namespace, name}
			if rapid.Bool().Draw(t, "release") {
				if had := names.Release(namespace, name); had != placed[key] {
					t.Fatalf("release of %v reports %v", key, had)
				}
				delete(placed, key)
				continue
			}
			got := names.Value(namespace, name)
			if placed[key] && got != name {
				t.Fatalf("%v lost its place", key)
			}
			if got == name {
				placed[key] = true
			}
			own := 0
			for other := range placed {
				if other[0] == namespace {
					own++
				}
			}
			if own > limits.PerNamespace || len(placed) > limits.InAll || names.Len() != len(placed) {
				t.Fatalf("%d places of %s and %d in all, limits %+v", own, namespace, len(placed), limits)
			}
		}
		for key := range placed {
			names.Release(key[0], key[1])
		}
		if names.Len() != 0 {
			t.Fatalf("%d names are left", names.Len())
		}
	})
}
