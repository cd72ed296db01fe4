package podindex_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"github.com/podops-dev/podops/test/builders"
)

// workload makes pods labelled app=web under PodOps.
func workload(uid, controller types.UID, desired int) podindex.Owner {
	return podindex.Owner{
		UID: uid, Namespace: "default", Controller: controller, Desired: desired,
		TemplateLabels: map[string]string{appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue, "app": "web"},
	}
}

func relabelled(owner podindex.Owner, labels map[string]string) podindex.Owner {
	owner.TemplateLabels = labels
	return owner
}

// TestDesired has rules that select app=web.
func TestDesired(t *testing.T) {
	leaving := workload("sts", "", 5)
	leaving.Terminating = true
	elsewhere := workload("sts", "", 5)
	elsewhere.Namespace = "other"
	for name, tc := range map[string]struct {
		owners []podindex.Owner
		pods   map[types.UID]int // by controller
		want   int
	}{
		"nothing":                          {},
		"pods without an owner":            {pods: map[types.UID]int{"": 3}, want: 3},
		"pods of an owner that is unknown": {pods: map[types.UID]int{"crd": 3}, want: 3},
		"a workload of just its pods":      {owners: []podindex.Owner{workload("sts", "", 3)}, pods: map[types.UID]int{"sts": 3}, want: 3},
		"a pod is missing":                 {owners: []podindex.Owner{workload("sts", "", 3)}, pods: map[types.UID]int{"sts": 2}, want: 3},
		"every pod is missing":             {owners: []podindex.Owner{workload("sts", "", 3)}, want: 3},
		"a pod too many":                   {owners: []podindex.Owner{workload("sts", "", 3)}, pods: map[types.UID]int{"sts": 4}, want: 3},
		"a workload of no replicas":        {owners: []podindex.Owner{workload("sts", "", 0)}, pods: map[types.UID]int{"sts": 2}, want: 0},
		"two workloads and a stray":        {owners: []podindex.Owner{workload("a", "", 3), workload("b", "", 2)}, pods: map[types.UID]int{"a": 1, "b": 2, "": 1}, want: 5},
		"a Deployment over one ReplicaSet": {owners: []podindex.Owner{workload("rs", "deploy", 3), workload("deploy", "", 3)}, pods: map[types.UID]int{"rs": 2}, want: 3},
		"a Deployment that rolls over two ReplicaSets": {
			owners: []podindex.Owner{workload("old", "deploy", 2), workload("new", "deploy", 2), workload("older", "deploy", 0), workload("deploy", "", 3)},
			pods:   map[types.UID]int{"old": 2, "new": 2}, want: 3,
		},
		"a ReplicaSet whose owner is unknown": {
			owners: []podindex.Owner{workload("rs", "rollout", 3)}, pods: map[types.UID]int{"rs": 2}, want: 3,
		},
		"two canaries of a workload that the rule does not cover": {
			owners: []podindex.Owner{relabelled(workload("sts", "", 10), map[string]string{appsv1alpha1.ControlLabelKey: "true", "app": "api"})},
			pods:   map[types.UID]int{"sts": 2}, want: 2,
		},
		"pods that were put under PodOps by hand": {
			owners: []podindex.Owner{relabelled(workload("sts", "", 10), map[string]string{"app": "web"})},
			pods:   map[types.UID]int{"sts": 2}, want: 2,
		},
		"a ReplicaSet of a Deployment that has moved on to other labels": {
			owners: []podindex.Owner{workload("rs", "deploy", 3), relabelled(workload("deploy", "", 10), map[string]string{"app": "api"})},
			pods:   map[types.UID]int{"rs": 2}, want: 2,
		},
		"a terminating workload": {owners: []podindex.Owner{leaving}, pods: map[types.UID]int{"sts": 2}, want: 2},
		"owners in a ring":       {owners: []podindex.Owner{workload("a", "b", 3), workload("b", "a", 5)}, pods: map[types.UID]int{"a": 2}, want: 2},
		"an owner of itself":     {owners: []podindex.Owner{workload("a", "a", 3)}, pods: map[types.UID]int{"a": 2}, want: 2},
		"in another namespace":   {owners: []podindex.Owner{elsewhere}, pods: map[types.UID]int{"": 1}, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			fill := func(x *index, owners ...podindex.Owner) {
				for _, owner := range owners {
					x.SetOwner(owner)
				}
			}
			early, late := newIndex(t), newIndex(t)
			early.SetRule(early.rule("r"))
			fill(early, tc.owners...)
			for _, x := range []*index{early, late} {
				for controller, pods := range tc.pods {
					for i := range pods {
						x.put(ownedPod(controller, i).Obj())
					}
				}
			}
			fill(late, tc.owners...)
			late.SetRule(late.rule("r"))
			for order, x := range map[string]*index{"owners first": early, "the rule last": late} {
				if got := x.only().Counts.Desired; got != tc.want {
					t.Errorf("%s: got %d, want %d", order, got, tc.want)
				}
			}
		})
	}
}

func ownedPod(controller types.UID, i int) *builders.PodBuilder {
	pod := builders.MakePod(string(controller)+"-"+string(rune('a'+i))).Label("app", "web")
	if controller != "" {
		pod.OwnedBy(metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: string(controller), UID: controller})
	}
	return pod
}

// TestOwnersThatChange tests that the index notifies of every change of the desired number.
func TestOwnersThatChange(t *testing.T) {
	x := newIndex(t)
	x.SetRule(x.rule("r"))
	x.put(ownedPod("sts", 0).Obj())
	step := func(what string, change func(), desired int, notifies bool) {
		t.Helper()
		x.notified = nil
		change()
		if got := x.only().Counts.Desired; got != desired {
			t.Errorf("%s: %d desired, want %d", what, got, desired)
		}
		want := []string(nil)
		if notifies {
			want = []string{"default"}
		}
		if diff := cmp.Diff(want, x.notified); diff != "" {
			t.Errorf("%s: notifications differ (-want +got):\n%s", what, diff)
		}
	}
	owner := workload("sts", "", 3)
	step("the owner is seen", func() { x.SetOwner(owner) }, 3, true)
	step("nothing changes", func() { x.SetOwner(owner) }, 3, false)
	owner.Desired = 4
	step("it is scaled", func() { x.SetOwner(owner) }, 4, true)
	step("its template changes", func() { x.SetOwner(relabelled(owner, nil)) }, 1, true)
	step("its template changes back", func() { x.SetOwner(owner) }, 4, true)
	owner.Terminating = true
	step("it is being deleted", func() { x.SetOwner(owner) }, 1, true)
	step("it is gone", func() { x.DeleteOwner("default", "sts") }, 1, true)
}
