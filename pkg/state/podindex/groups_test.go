package podindex_test

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"github.com/podops-dev/podops/test/builders"
)

// member returns an available pod of a StatefulSet.
func member(name string, set types.UID) *builders.PodBuilder {
	return builders.MakePod(name).Label("app", "web").Available().
		OwnedBy(metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: string(set), UID: set})
}

// workers returns the StatefulSet of the workers of a leader.
func workers(leader types.UID, desired int) podindex.Owner {
	owner := workload("workers-of-"+leader, leader, desired)
	owner.Kind, owner.Name, owner.Above = "StatefulSet", string(owner.UID), podindex.OwnerName{APIVersion: "v1", Kind: "Pod", Name: string(leader)}
	return owner
}

// TestGroups has two groups of a leader and two workers each, as a LeaderWorkerSet has them.
func TestGroups(t *testing.T) {
	leader := func(i int) *builders.PodBuilder { return member("leader-"+strconv.Itoa(i), "leaders") }
	uid := func(i int) types.UID { return leader(i).Obj().UID }
	waiting := func(i int) *builders.PodBuilder {
		return leader(i).Waiting(appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType, builders.Epoch)
	}
	for name, tc := range map[string]struct {
		leader    *builders.PodBuilder // the first; nil: it is gone
		reserved  bool
		available int
		recorded  int
		with      map[types.UID]int
	}{
		"no leader waits":                           {leader: leader(0), available: 6},
		"a leader waits for its deletion":           {leader: waiting(0), available: 6, with: map[types.UID]int{uid(0): 2}},
		"a leader waits for another operation":      {leader: leader(0).Waiting("x", "upgrade", builders.Epoch), available: 6},
		"the permit of a leader is recorded":        {leader: waiting(0), reserved: true, available: 6, recorded: 3, with: map[types.UID]int{uid(0): 2}},
		"a leader may be deleted at any time":       {leader: leader(0).Allowed(appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType).Unready(builders.Epoch), available: 3},
		"a leader may be updated at any time":       {leader: leader(0).Allowed("x", "upgrade").Unready(builders.Epoch), available: 5},
		"a leader is terminating":                   {leader: leader(0).Terminating(builders.Epoch), available: 3},
		"a leader is gone, and its workers are not": {available: 3},
		"a leader that has failed may be deleted":   {leader: waiting(0).Unready(builders.Epoch), available: 5, with: map[types.UID]int{uid(0): 2}},
	} {
		t.Run(name, func(t *testing.T) {
			x := newIndex(t)
			x.SetOwner(workload("leaders", "", 2))
			version := ""
			if tc.leader != nil {
				version = x.put(tc.leader.Obj())
			}
			x.put(leader(1).Obj())
			for i := range 2 {
				x.SetOwner(workers(uid(i), 2))
				for j := range 2 {
					x.put(member("worker-"+strconv.Itoa(i)+strconv.Itoa(j), workers(uid(i), 2).UID).Obj())
				}
			}
			rule := x.rule("r")
			if tc.reserved {
				rule.Status.Permits = &appsv1alpha1.PermitRecord{Reserved: []appsv1alpha1.ReservedPod{{
					UID: uid(0), Name: "leader-0", ResourceVersion: version,
				}}}
			}
			x.SetRule(rule)
			got := x.only()
			if got.Counts.Available != tc.available || got.Counts.Reserved != tc.recorded {
				t.Errorf("%d available, %d reserved, want %d and %d", got.Counts.Available, got.Counts.Reserved, tc.available, tc.recorded)
			}
			if diff := cmp.Diff(tc.with, got.With); diff != "" {
				t.Errorf("pods that go with others (-want +got):\n%s", diff)
			}
		})
	}
}

// TestGroupsDesired has three groups of a leader and two workers each, of which the first is replaced.
func TestGroupsDesired(t *testing.T) {
	leader := func(i int) *builders.PodBuilder { return member("leader-"+strconv.Itoa(i), "leaders") }
	for name, tc := range map[string]struct {
		leader  *builders.PodBuilder // the first; nil: it is gone
		workers bool                 // the StatefulSet of its workers exists
		leaders int
		desired int
	}{
		"every group is there":                         {leader: leader(0), workers: true, leaders: 3, desired: 9},
		"the leader is terminating":                    {leader: leader(0).Terminating(builders.Epoch), workers: true, leaders: 3, desired: 9},
		"the leader is gone":                           {workers: true, leaders: 3, desired: 9},
		"the leader and its StatefulSet are gone":      {leaders: 3, desired: 9},
		"the next leader has no StatefulSet yet":       {leader: leader(0).Unready(builders.Epoch), leaders: 3, desired: 9},
		"the leader has failed":                        {leader: leader(0).Unready(builders.Epoch), workers: true, leaders: 3, desired: 9},
		"the leader is available, and has no workers":  {leader: leader(0), leaders: 3, desired: 7},
		"the leaders are scaled in":                    {leaders: 2, desired: 6},
		"the leaders are scaled in, and one is behind": {leader: leader(0).Terminating(builders.Epoch), workers: true, leaders: 2, desired: 8},
	} {
		t.Run(name, func(t *testing.T) {
			x := newIndex(t)
			x.SetRule(x.rule("r"))
			x.SetOwner(workload("leaders", "", tc.leaders))
			if tc.leader != nil {
				x.put(tc.leader.Obj())
			}
			for i := range 3 {
				if i > 0 {
					x.put(leader(i).Obj())
				}
				if i > 0 || tc.workers {
					x.SetOwner(workers(leader(i).Obj().UID, 2))
				}
			}
			if got := x.only().Counts.Desired; got != tc.desired {
				t.Errorf("%d pods are desired, want %d", got, tc.desired)
			}
		})
	}
}

// TestGroupsEnd shows that pods in a ring of owners go with each other once, and that nothing is counted after
// the pods that own others have gone.
func TestGroupsEnd(t *testing.T) {
	x := newIndex(t)
	x.SetRule(x.rule("r"))
	owned := func(name, by string) *builders.PodBuilder {
		return builders.MakePod(name).Label("app", "web").Available().Waiting(appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType, builders.Epoch).
			OwnedBy(metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: by, UID: builders.MakePod(by).Obj().UID})
	}
	x.put(owned("a", "b").Obj())
	x.put(owned("b", "a").Obj())
	want := map[types.UID]int{builders.MakePod("a").Obj().UID: 1, builders.MakePod("b").Obj().UID: 1}
	if diff := cmp.Diff(want, x.only().With); diff != "" {
		t.Errorf("pods that go with others (-want +got):\n%s", diff)
	}
	x.remove(owned("b", "a").Obj())
	if got := x.only(); got.With != nil || got.Counts.Available != 0 {
		t.Errorf("%d available and %v: the pod that owns the other pod is gone", got.Counts.Available, got.With)
	}
	x.put(builders.MakePod("a").Label("app", "web").Available().Obj())
	if got := x.only(); got.Counts.Available != 1 {
		t.Errorf("%d available, want the pod that no pod owns any more", got.Counts.Available)
	}
}
