package podindex_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"github.com/podops-dev/podops/test/builders"
)

var clones = metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "CloneSet", Name: "web", UID: "clones"}

// cloned returns a pod of the CloneSet.
func cloned(name string) *builders.PodBuilder {
	return builders.MakePod(name).Label("app", "web").OwnedBy(clones).Available()
}

// scaled returns the CloneSet with the numbers of its scale.
func scaled(desired, observed int) podindex.Owner {
	return podindex.Owner{
		UID: "clones", Namespace: "default", Kind: "CloneSet", Name: "web", Scale: true, Desired: desired, Observed: observed,
	}
}

func TestDesiredByScale(t *testing.T) {
	terminating, unread := scaled(3, 2), scaled(0, 0)
	terminating.Terminating = true
	unread.Uncounted, unread.Unreadable = true, "forbidden"
	two := []*builders.PodBuilder{cloned("a"), cloned("b")}
	for name, tc := range map[string]struct {
		owner podindex.Owner
		pods  []*builders.PodBuilder

		// recorded is how many pods it had when its last permit was given; 0: no record.
		recorded int32

		desired    int
		remembered map[types.UID]int
	}{
		"as many as there are":           {owner: scaled(2, 2), pods: two, desired: 2},
		"a pod is missing":               {owner: scaled(3, 2), pods: two, desired: 3},
		"it is scaled in":                {owner: scaled(1, 2), pods: two, desired: 1},
		"it is scaled in after a permit": {owner: scaled(1, 2), pods: two, recorded: 3, desired: 1},
		"a pod is missing after a permit, and the record follows the scale": {
			owner: scaled(4, 2), pods: two, recorded: 3, desired: 4, remembered: map[types.UID]int{"clones": 4},
		},
		"a terminating pod is counted by its controller": {
			owner: scaled(3, 3), pods: append(two, cloned("c").Terminating(builders.Epoch)), desired: 3,
		},
		"a terminating pod is not counted by its controller": {
			owner: scaled(3, 2), pods: append(two, cloned("c").Terminating(builders.Epoch)), desired: 3,
		},
		"its controller counts a pod that is gone": {
			owner: scaled(3, 3), pods: two, recorded: 3, desired: 2, remembered: map[types.UID]int{"clones": 3},
		},
		"its controller does not count a new pod":        {owner: scaled(1, 1), pods: two, desired: 2},
		"its replicas are shards of several pods":        {owner: scaled(1, 1), pods: two, desired: 2},
		"most of its pods are not under PodOps":          {owner: scaled(10, 10), pods: two, desired: 2},
		"the rule selects some of its pods":              {owner: scaled(3, 3), pods: append(two, cloned("c").Label("app", "api")), desired: 2},
		"it is terminating":                              {owner: terminating, pods: two, desired: 2},
		"it cannot be read":                              {owner: unread, pods: two, desired: 2},
		"it cannot be read, and a pod is missing":        {owner: unread, pods: two, recorded: 3, desired: 2, remembered: map[types.UID]int{"clones": 3}},
		"it has no pod":                                  {owner: scaled(3, 0), recorded: 3, desired: 0, remembered: map[types.UID]int{"clones": 3}},
		"it owns a ReplicaSet, and its own pods as well": {owner: scaled(2, 2), pods: append(two, ownedPod("rs", 0).Available()), desired: 5},
	} {
		t.Run(name, func(t *testing.T) {
			x := newIndex(t)
			for _, pod := range tc.pods {
				x.put(pod.Obj())
			}
			x.SetOwner(tc.owner)
			x.SetOwner(workload("rs", "clones", 3))
			x.DeleteOwner("default", "rs")
			if name == "it owns a ReplicaSet, and its own pods as well" {
				x.SetOwner(workload("rs", "clones", 3))
			}
			rule := x.rule("r")
			if tc.recorded > 0 {
				rule.Status.Permits = &appsv1alpha1.PermitRecord{Owners: []appsv1alpha1.OwnerPods{{UID: "clones", Pods: tc.recorded}}}
			}
			x.SetRule(rule)
			got := x.only()
			if got.Counts.Desired != tc.desired {
				t.Errorf("%d desired, want %d", got.Counts.Desired, tc.desired)
			}
			want := tc.remembered
			if want == nil && tc.recorded > 0 {
				want = map[types.UID]int{}
			}
			if diff := cmp.Diff(want, got.Remembered); diff != "" {
				t.Errorf("remembered (-want +got):\n%s", diff)
			}
			unreadable := 0
			if tc.owner.Unreadable != "" && len(tc.pods) > 0 {
				unreadable = 1
			}
			if len(got.Unreadable) != unreadable {
				t.Errorf("unreadable: %v", got.Unreadable)
			}
		})
	}
}

// TestARecordHasTheDesiredNumber shows that when the scale cannot be read any more, the number of the last permit is that
// of the scale then.
func TestARecordHasTheDesiredNumber(t *testing.T) {
	x := newIndex(t)
	x.put(cloned("a").Waiting("x", "delete", builders.Epoch).Obj())
	x.put(cloned("b").Obj())
	x.SetOwner(scaled(5, 2))
	x.SetRule(x.rule("r"))
	if diff := cmp.Diff(map[types.UID]int{"clones": 5}, x.only().Owners); diff != "" {
		t.Errorf("numbers to record (-want +got):\n%s", diff)
	}
}

func TestControllersOfPodsAreReported(t *testing.T) {
	x := newIndex(t)
	var reported []podindex.Controller
	var present []bool
	x.WatchControllers(func(controller podindex.Controller, is bool) {
		reported, present = append(reported, controller), append(present, is)
	})
	x.put(cloned("a").Obj())
	x.put(cloned("b").Obj())
	x.put(cloned("b").Label("changed", "yes").Obj())
	x.put(builders.MakePod("alone").Obj())
	x.remove(cloned("a").Obj())
	x.remove(cloned("b").Obj())
	web := podindex.Controller{Namespace: "default", APIVersion: "example.com/v1", Kind: "CloneSet", Name: "web", UID: "clones"}
	if diff := cmp.Diff([]podindex.Controller{web, web}, reported); diff != "" {
		t.Errorf("controllers (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]bool{true, false}, present); diff != "" {
		t.Errorf("present (-want +got):\n%s", diff)
	}
}

// replicaSet returns a ReplicaSet of the Rollout.
func replicaSet(uid types.UID, desired int) podindex.Owner {
	set := workload(uid, "rollout", desired)
	set.Kind, set.Name = "ReplicaSet", string(uid)
	set.Above = podindex.OwnerName{APIVersion: "argoproj.io/v1alpha1", Kind: "Rollout", Name: "web"}
	return set
}

func rollout(desired int) podindex.Owner {
	return podindex.Owner{UID: "rollout", Namespace: "default", Kind: "Rollout", Name: "web", Scale: true, Desired: desired}
}

// TestDesiredByTheScaleAboveReplicaSets shows that the numbers of the ReplicaSets do not count, which their
// controller changes while it rolls.
func TestDesiredByTheScaleAboveReplicaSets(t *testing.T) {
	unread, terminating := rollout(0), rollout(8)
	unread.Uncounted, unread.Unreadable = true, "forbidden"
	terminating.Terminating = true
	pods := map[types.UID]int{"old": 8, "new": 2}
	for name, tc := range map[string]struct {
		above      podindex.Owner
		sets       []podindex.Owner
		recorded   int32
		desired    int
		owner      string
		unreadable int
	}{
		"half of the old are to go":      {above: rollout(8), sets: []podindex.Owner{replicaSet("old", 4), replicaSet("new", 2)}, desired: 8, owner: "Rollout"},
		"both sets are complete":         {above: rollout(8), sets: []podindex.Owner{replicaSet("old", 8), replicaSet("new", 8)}, desired: 8, owner: "Rollout"},
		"it is scaled in after a permit": {above: rollout(4), recorded: 8, sets: []podindex.Owner{replicaSet("old", 4), replicaSet("new", 2)}, desired: 4, owner: "Rollout"},
		"it cannot be read":              {above: unread, sets: []podindex.Owner{replicaSet("old", 8), replicaSet("new", 2)}, desired: 10, owner: "ReplicaSet", unreadable: 1},
		"it is terminating":              {above: terminating, sets: []podindex.Owner{replicaSet("old", 8), replicaSet("new", 2)}, desired: 10, owner: "ReplicaSet"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, late := range []bool{false, true} {
				x := newIndex(t)
				rule := x.rule("r")
				if tc.recorded > 0 {
					rule.Status.Permits = &appsv1alpha1.PermitRecord{Owners: []appsv1alpha1.OwnerPods{{UID: "rollout", Pods: tc.recorded}}}
				}
				x.SetRule(rule)
				if !late {
					x.SetOwner(tc.above)
				}
				for uid, count := range pods {
					for i := range count {
						x.put(builders.MakePod(string(uid)+"-"+string(rune('a'+i))).Label("app", "web").Available().Waiting("x", "delete", builders.Epoch).
							OwnedBy(metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: string(uid), UID: uid}).Obj())
					}
				}
				for _, set := range tc.sets {
					x.SetOwner(set)
				}
				x.SetOwner(tc.above)
				got := x.only()
				if got.Counts.Desired != tc.desired {
					t.Errorf("%d desired, want %d", got.Counts.Desired, tc.desired)
				}
				if len(got.Unreadable) != tc.unreadable {
					t.Errorf("unreadable: %v", got.Unreadable)
				}
				if kind := got.Waiting[0].Pod.Owner.Kind; kind != tc.owner {
					t.Errorf("rules see a %s as the owner, want a %s", kind, tc.owner)
				}
				if owned := got.Owners["rollout"]; tc.owner == "Rollout" && owned != tc.desired {
					t.Errorf("%d pods to record, want %d", owned, tc.desired)
				}
			}
		})
	}
}

// TestReplicaSetsDoNotCountBeforeTheScaleAbove shows that until it is known how many pods the controller of ReplicaSets wants, its pods count:
// it may have lowered one ReplicaSet and not raised another yet.
func TestReplicaSetsDoNotCountBeforeTheScaleAbove(t *testing.T) {
	unread := rollout(0)
	unread.Uncounted, unread.Unreadable = true, "forbidden"
	for name, tc := range map[string]struct {
		answer  func(x *index)
		desired int
	}{
		"it has not been read": {answer: func(*index) {}, desired: 8},
		"it has been read":     {answer: func(x *index) { x.SetOwner(rollout(6)) }, desired: 6},
		"it has no scale":      {answer: func(x *index) { x.DeleteOwner("default", "rollout") }, desired: 4},
		"it cannot be read":    {answer: func(x *index) { x.SetOwner(unread) }, desired: 4},
		"its pods have left, and come back": {answer: func(x *index) {
			x.SetOwner(rollout(6))
			for i := range 8 {
				x.remove(ofSet("old", i).Obj())
			}
			x.DeleteOwner("default", "rollout")
			for i := range 8 {
				x.put(ofSet("old", i).Obj())
			}
		}, desired: 8},
	} {
		t.Run(name, func(t *testing.T) {
			x := newIndex(t)
			x.WatchControllers(func(podindex.Controller, bool) {})
			x.SetRule(x.rule("r"))
			for i := range 8 {
				x.put(ofSet("old", i).Obj())
			}
			x.SetOwner(replicaSet("old", 4))
			x.SetOwner(replicaSet("new", 0))
			tc.answer(x)
			got := x.only()
			if got.Counts.Desired != tc.desired {
				t.Errorf("%d desired, want %d", got.Counts.Desired, tc.desired)
			}
			if tc.desired == 8 && got.Owners["rollout"] != 8 {
				t.Errorf("numbers to record: %v, want those of the pods of the Rollout", got.Owners)
			}
		})
	}
}

// ofSet returns a pod under a ReplicaSet that belongs to the Rollout.
func ofSet(set types.UID, i int) *builders.PodBuilder {
	return builders.MakePod(fmt.Sprint(set, "-", i)).Label("app", "web").Available().Waiting("x", "delete", builders.Epoch).
		OwnedBy(metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: string(set), UID: set})
}

func TestControllersOfReplicaSetsAreReported(t *testing.T) {
	x := newIndex(t)
	var reported []string
	x.WatchControllers(func(controller podindex.Controller, is bool) {
		if controller.Kind != "ReplicaSet" {
			reported = append(reported, fmt.Sprint(controller.APIVersion, " ", controller.Kind, " ", controller.Name, " ", controller.UID, " ", is))
		}
	})
	pod := func(set types.UID) *corev1.Pod {
		return builders.MakePod("of-"+string(set)).Label("app", "web").
			OwnedBy(metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: string(set), UID: set}).Obj()
	}
	x.put(pod("old"))
	x.SetOwner(replicaSet("old", 1))
	x.SetOwner(replicaSet("new", 1))
	x.put(pod("new"))
	x.remove(pod("old"))
	x.SetOwner(replicaSet("old", 0))
	deployed := replicaSet("deployed", 1)
	deployed.Controller, deployed.Above = "deployment", podindex.OwnerName{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}
	x.SetOwner(deployed)
	x.put(pod("deployed"))
	x.remove(pod("new"))
	want := []string{"argoproj.io/v1alpha1 Rollout web rollout true", "argoproj.io/v1alpha1 Rollout web rollout false"}
	if diff := cmp.Diff(want, reported); diff != "" {
		t.Errorf("controllers (-want +got):\n%s", diff)
	}
}
