package podindex_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/deferreddelete"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"github.com/podops-dev/podops/test/builders"
)

// revised is a ReplicaSet of the Deployment deploy: its place in the order of creation, its revision and its pods.
func revised(uid types.UID, created, revision, pods int) podindex.Owner {
	owner := workload(uid, "deploy", pods)
	owner.Kind, owner.Revision, owner.Created = "ReplicaSet", int64(revision), builders.Epoch.Add(time.Duration(created)*time.Hour)
	return owner
}

// TestTheStateOfARevisionFollowsItsWorkload has ReplicaSets rs-1, rs-2 and rs-3, created in this order.
func TestTheStateOfARevisionFollowsItsWorkload(t *testing.T) {
	type states map[types.UID]rule.RevisionState
	for name, c := range map[string]struct {
		owners []podindex.Owner
		want   states
	}{
		"at rest":          {owners: []podindex.Owner{revised("rs-1", 1, 1, 0), revised("rs-2", 2, 2, 3)}, want: states{"rs-2": rule.RevisionNewest}},
		"a rollout":        {owners: []podindex.Owner{revised("rs-1", 1, 1, 2), revised("rs-2", 2, 2, 1)}, want: states{"rs-1": rule.RevisionOutdated, "rs-2": rule.RevisionNewest}},
		"a second rollout": {owners: []podindex.Owner{revised("rs-1", 1, 1, 0), revised("rs-2", 2, 2, 2), revised("rs-3", 3, 3, 1)}, want: states{"rs-2": rule.RevisionOutdated}},
		"a rollback":       {owners: []podindex.Owner{revised("rs-1", 1, 3, 2), revised("rs-2", 2, 2, 1)}, want: states{"rs-1": rule.RevisionNewest, "rs-2": rule.RevisionAbandoned}},
		"a fix in the middle of a rollout": {
			owners: []podindex.Owner{revised("rs-1", 1, 1, 2), revised("rs-2", 2, 2, 1), revised("rs-3", 3, 3, 1)},
			want:   states{"rs-1": rule.RevisionOutdated, "rs-2": rule.RevisionAbandoned, "rs-3": rule.RevisionNewest},
		},
		"a ReplicaSet alone": {owners: []podindex.Owner{workload("rs-1", "", 3)}, want: states{"rs-1": rule.RevisionUnknown}},
	} {
		t.Run(name, func(t *testing.T) {
			x := newIndex(t)
			for uid := range c.want {
				x.put(builders.MakePod("pod-"+string(uid)).Label(appsv1.DefaultDeploymentUniqueLabelKey, string(uid)).
					OwnedBy(metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: string(uid), UID: uid}).
					Available().Waiting("a", "upgrade", builders.Epoch).Obj())
			}
			x.SetOwner(workload("deploy", "", 3))
			for _, owner := range c.owners {
				x.SetOwner(owner)
			}
			for _, request := range x.Snapshot("default", nil).Waiting {
				uid := types.UID(request.Pod.Name[len("pod-"):])
				if got := request.Pod.Revision; got.State != c.want[uid] || got.Current != string(uid) {
					t.Errorf("%s: %+v, want %s", uid, got, c.want[uid])
				}
			}
		})
	}
}

func TestTheRevisionOfAStatefulSetIsThatOfThePod(t *testing.T) {
	x := newIndex(t)
	for name, hash := range map[string]string{"new": "h3", "old": "h1", "bad": "h2"} {
		x.put(builders.MakePod(name).Label(appsv1.ControllerRevisionHashLabelKey, hash).
			OwnedBy(metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "sts", UID: "sts"}).
			Available().Waiting("a", "upgrade", builders.Epoch).Obj())
	}
	set := workload("sts", "", 3)
	set.UpdateRevision, set.CurrentRevision = "h3", "h1"
	x.SetOwner(set)
	states := func() map[string]rule.RevisionState {
		all := map[string]rule.RevisionState{}
		for _, request := range x.Snapshot("default", nil).Waiting {
			all[request.Pod.Name] = request.Pod.Revision.State
		}
		return all
	}
	if got := states(); got["new"] != rule.RevisionNewest || got["old"] != rule.RevisionOutdated || got["bad"] != rule.RevisionAbandoned {
		t.Errorf("in a rollout: %v", got)
	}
	set.UpdateRevision = "h1"
	x.SetOwner(set)
	if got := states(); got["new"] != rule.RevisionAbandoned || got["old"] != rule.RevisionNewest {
		t.Errorf("after a rollback: %v", got)
	}
}

// TestAChangeOfTheRevisionIsAChangeOfThePod matters because verdicts are cached by the version of a pod.
func TestAChangeOfTheRevisionIsAChangeOfThePod(t *testing.T) {
	x := newIndex(t)
	x.SetOwner(workload("deploy", "", 3))
	x.SetOwner(revised("rs-1", 1, 1, 3))
	x.put(builders.MakePod("web").OwnedBy(metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "rs-1", UID: "rs-1"}).
		Available().Waiting("a", "upgrade", builders.Epoch).Obj())
	before := x.Snapshot("default", nil).Waiting[0].Pod.Version
	x.SetOwner(revised("rs-2", 2, 2, 1))
	outdated := x.Snapshot("default", nil).Waiting[0].Pod.Version
	x.SetOwner(revised("rs-1", 1, 3, 3))
	after := x.Snapshot("default", nil).Waiting[0].Pod.Version
	if before == outdated || outdated == after {
		t.Errorf("versions %q, %q when it is outdated, %q after a rollback", before, outdated, after)
	}
}

// TestWorkloads has a pod wait: the snapshot has what its Deployment wants, and each change is a notification.
func TestWorkloads(t *testing.T) {
	x := newIndex(t)
	x.put(builders.MakePod("web-0").Label(appsv1.DefaultDeploymentUniqueLabelKey, "one").
		OwnedBy(metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "rs-1", UID: "rs-1"}).
		Available().Waiting("a", "upgrade", builders.Epoch).Obj())
	first, second, deployment := revised("rs-1", 1, 1, 1), revised("rs-2", 2, 2, 1), workload("deploy", "", 3)
	first.TemplateLabels = map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: "one"}
	second.TemplateLabels = map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: "two"}
	paused, unknown := deployment, deployment
	paused.Paused, unknown.Uncounted = true, true
	for _, step := range []struct {
		name  string
		owner podindex.Owner
		want  map[types.UID]rule.Workload
	}{
		{"the ReplicaSet alone", first, map[types.UID]rule.Workload{"rs-1": {Desired: 1}}},
		{"the Deployment", deployment, map[types.UID]rule.Workload{"deploy": {Desired: 3, Revision: "one"}}},
		{"a rollout", second, map[types.UID]rule.Workload{"deploy": {Desired: 3, Revision: "two"}}},
		{"a pause", paused, map[types.UID]rule.Workload{"deploy": {Desired: 3, Revision: "two", Paused: true}}},
		{"numbers that are not known", unknown, map[types.UID]rule.Workload{}},
	} {
		x.notified = nil
		x.SetOwner(step.owner)
		if diff := cmp.Diff(step.want, x.Snapshot("default", nil).Workloads); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
		if len(x.notified) == 0 {
			t.Errorf("%s is no notification", step.name)
		}
	}
}

// TestAnOrphanThatWaitsIsNotNeeded has a pod wait for the controller of an owner that was deleted without it: no owner keeps it.
func TestAnOrphanThatWaitsIsNotNeeded(t *testing.T) {
	x := newIndex(t)
	pod := builders.MakePod("web-0").Available().Waiting(appsv1alpha1.PodDeleteID, appsv1alpha1.DeleteOperationType, builders.Epoch).Obj()
	record := deferreddelete.Request{Method: deferreddelete.MethodDelete, Actor: deferreddelete.ActorOwner}.Begin(pod, deferreddelete.Begun(pod))
	pod.Annotations = map[string]string{appsv1alpha1.PendingDeleteAnnotationKey: deferreddelete.Encode(record)}
	x.put(pod)
	snapshot := x.Snapshot("default", nil)
	if len(snapshot.Waiting) != 1 || snapshot.IsNeeded(pod.UID) {
		t.Errorf("%d requests wait, needed: %t", len(snapshot.Waiting), snapshot.IsNeeded(pod.UID))
	}
}
