package podindex_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/pkg/podindex"
	"github.com/podops-dev/podops/pkg/rule"
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
