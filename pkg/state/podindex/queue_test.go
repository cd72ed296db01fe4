package podindex

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/test/builders"
)

// waiter is a pod that waits with so many ids since so many milliseconds after the epoch.
func waiter(name string, since, ids int) *pod {
	p := &pod{fact: &rule.PodFact{UID: types.UID(name + "-uid"), Name: name}}
	for id := range ids {
		p.requests = append(p.requests, rule.Request{
			Pod: p.fact, Stage: appsv1alpha1.StagePreCheck, ID: fmt.Sprint(id), Since: builders.Epoch.Add(time.Duration(since) * time.Millisecond),
		})
	}
	return p
}

// ordered returns every pod that waits, in order, after any changes since the last call, and
// earlier lists stay as they were.
func TestQueueKeepsItsOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q, present := newQueue(new(uint64)), map[types.UID]*pod{}
		var lists, copies [][]rule.Request
		for range rapid.IntRange(1, 6).Draw(t, "calls") {
			for range rapid.IntRange(0, 6).Draw(t, "changes") {
				p := waiter(rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, "name"),
					rapid.IntRange(0, 2).Draw(t, "since"), rapid.IntRange(1, 2).Draw(t, "ids"))
				if rapid.Bool().Draw(t, "goes") {
					q.drop(p.fact.UID)
					delete(present, p.fact.UID)
				} else {
					q.put(p)
					present[p.fact.UID] = p
				}
			}
			var want []rule.Request
			for _, p := range present {
				want = append(want, p.requests...)
				if got := q.ordered().pod(p.fact.UID); got != p {
					t.Fatalf("the pod %s is %v, want %v", p.fact.Name, got, p)
				}
			}
			slices.SortFunc(want, func(a, b rule.Request) int { return inOrder(&a, &b) })
			got := q.ordered().requests
			if diff := cmp.Diff(want, slices.Clone(got)); diff != "" && len(want)+len(got) > 0 {
				t.Fatalf("requests (-want +got):\n%s", diff)
			}
			lists, copies = append(lists, got), append(copies, slices.Clone(got))
		}
		if diff := cmp.Diff(copies, lists); diff != "" {
			t.Fatalf("an earlier list has changed (-as it was +as it is):\n%s", diff)
		}
	})
}

// A call after which nothing changed must not cost time for each pod that waits.
func TestAnIdleLookAllocatesNothing(t *testing.T) {
	q := newQueue(new(uint64))
	for i := range 100 {
		q.put(waiter(fmt.Sprint(i), i, 1))
	}
	q.ordered()
	if allocated := testing.AllocsPerRun(10, func() { q.ordered() }); allocated > 0 {
		t.Errorf("a call allocates %v times", allocated)
	}
}
