package plan_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	kvstorev1 "github.com/podops-dev/podops/examples/kvstore/apis/v1"
	"github.com/podops-dev/podops/examples/kvstore/pkg/operator/plan"
)

// store returns a store whose members are healthy and in service. db-1 leads.
func store(replicas int32) plan.Snapshot {
	s := plan.Snapshot{
		Cluster: &kvstorev1.KVStoreCluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db"}, Spec: kvstorev1.KVStoreClusterSpec{Replicas: replicas},
		},
		StatefulSet: &appsv1.StatefulSet{}, Members: map[int32]plan.Member{}, Store: plan.Observation{At: epoch(), Leader: "db-1", Term: 4},
	}
	for ordinal := range replicas {
		name := plan.PodName("db", ordinal)
		s.Members[ordinal] = plan.Member{Pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: name, UID: types.UID(name),
				Labels: map[string]string{appsv1alpha1.ServiceAvailableLabelKey: "1"},
			},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
				{Type: corev1.ContainersReady, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue},
			}},
		}}
		s.Store.Members, s.Store.Voters = append(s.Store.Members, name), append(s.Store.Voters, name)
	}
	return s
}

func targets(ordinals ...int32) (targets []plan.Target) {
	for _, ordinal := range ordinals {
		targets = append(targets, plan.Target{Name: plan.PodName("db", ordinal), UID: types.UID(plan.PodName("db", ordinal))})
	}
	return targets
}

// sicken makes the containers of pods not ready.
func sicken(s plan.Snapshot, ordinals ...int32) {
	for _, ordinal := range ordinals {
		s.Members[ordinal].Pod.Status.Conditions = nil
	}
}

// takeOff makes pods not ready whose containers are, as PodOps does.
func takeOff(s plan.Snapshot, ordinals ...int32) {
	for _, ordinal := range ordinals {
		pod := s.Members[ordinal].Pod
		pod.Status.Conditions = pod.Status.Conditions[:1]
	}
}

func label(s plan.Snapshot, prefix string, ordinals ...int32) {
	for _, ordinal := range ordinals {
		s.Members[ordinal].Pod.Labels[prefix+"/other"] = "1"
	}
}

func TestWhichPodsAreApproved(t *testing.T) {
	now := metav1.NewTime(epoch())
	type result struct {
		Approved []string
		Rejected []string // with their reasons
		Move     *plan.Move
		Open     bool
	}
	for sentence, tc := range map[string]struct {
		replicas int32
		change   func(*plan.Snapshot)
		targets  []plan.Target
		want     result
	}{
		"a follower is approved": {3, nil, targets(2), result{Approved: []string{"db-2"}}},
		"leadership moves away from the leader first, to the lowest pod": {3, nil, targets(1), result{
			Rejected: []string{"db-1: leadership moves away from pod db-1"}, Move: &plan.Move{From: "db-1", To: []string{"db-0", "db-2"}}, Open: true}},
		"from the lowest pod leadership moves to the highest": {3, func(s *plan.Snapshot) { s.Store.Leader = "db-0" }, targets(0), result{
			Rejected: []string{"db-0: leadership moves away from pod db-0"}, Move: &plan.Move{From: "db-0", To: []string{"db-2", "db-1"}}, Open: true}},
		"leadership moves to no pod that is a target, too": {3, nil, targets(0, 1), result{
			Approved: []string{"db-0"}, Rejected: []string{"db-1: leadership moves away from pod db-1"},
			Move: &plan.Move{From: "db-1", To: []string{"db-2"}}, Open: true}},
		"leadership moves to no pod on which an operation has begun": {3, func(s *plan.Snapshot) { label(*s, appsv1alpha1.OperatingLabelPrefix, 0) },
			targets(1), result{Rejected: []string{"db-1: leadership moves away from pod db-1"}, Move: &plan.Move{From: "db-1", To: []string{"db-2"}}, Open: true}},
		"leadership moves to no pod that is off traffic": {3, func(s *plan.Snapshot) { takeOff(*s, 2) },
			targets(1), result{Rejected: []string{"db-1: leadership moves away from pod db-1"}, Move: &plan.Move{From: "db-1", To: []string{"db-0"}}, Open: true}},
		"leadership moves to no pod that has no vote": {3, func(s *plan.Snapshot) {
			s.Store.Voters = []string{"db-0", "db-1"}
		}, targets(1), result{Rejected: []string{"db-1: leadership moves away from pod db-1"}, Move: &plan.Move{From: "db-1", To: []string{"db-0"}}, Open: true}},
		"of all pods at once, the leader is not approved": {3, nil, targets(0, 1, 2), result{
			Approved: []string{"db-0", "db-2"},
			Rejected: []string{"db-1: pod db-1 leads, and no other pod can: each has no vote, is not ready, or is about to be operated on"}}},
		"a follower waits while no pod leads": {3, func(s *plan.Snapshot) { s.Store = plan.Observation{At: epoch()} }, targets(2), result{
			Rejected: []string{"db-2: no pod leads"}, Open: true}},
		"a follower waits while the store needs it": {3, func(s *plan.Snapshot) { sicken(*s, 0) }, targets(2), result{
			Rejected: []string{"db-2: without pod db-2, 1 members are healthy, and the store needs 2"}}},
		"a follower waits while a permitted pod may go": {3, func(s *plan.Snapshot) { label(*s, appsv1alpha1.PrepareLabelPrefix, 0) }, targets(2), result{
			Rejected: []string{"db-2: without pod db-2, 1 members are healthy, and the store needs 2"}}},
		"a follower waits while a pod is operated on": {3, func(s *plan.Snapshot) { label(*s, appsv1alpha1.OperateLabelPrefix, 0) }, targets(2), result{
			Rejected: []string{"db-2: without pod db-2, 1 members are healthy, and the store needs 2"}}},
		"a follower waits while a pod terminates": {3, func(s *plan.Snapshot) { s.Members[0].Pod.DeletionTimestamp = &now }, targets(2), result{
			Rejected: []string{"db-2: without pod db-2, 1 members are healthy, and the store needs 2"}}},
		"of five members two may be away": {5, func(s *plan.Snapshot) { sicken(*s, 0) }, targets(2), result{Approved: []string{"db-2"}}},
		"a pod that waits for its traffic is a healthy member": {3, func(s *plan.Snapshot) { takeOff(*s, 0) }, targets(2), result{
			Approved: []string{"db-2"}}},
		"leadership stays while the store needs the leader": {3, func(s *plan.Snapshot) { sicken(*s, 0) }, targets(1), result{
			Rejected: []string{"db-1: without pod db-1, 1 members are healthy, and the store needs 2"}}},
		"a broken follower is approved without a leader": {3, func(s *plan.Snapshot) {
			sicken(*s, 0, 2)
			s.Store = plan.Observation{At: epoch()}
		}, targets(2), result{Approved: []string{"db-2"}}},
		"a broken leader hands over": {3, func(s *plan.Snapshot) { sicken(*s, 1) }, targets(1), result{
			Rejected: []string{"db-1: leadership moves away from pod db-1"}, Move: &plan.Move{From: "db-1", To: []string{"db-0", "db-2"}}, Open: true}},
		"a broken leader without a successor is approved": {3, func(s *plan.Snapshot) { sicken(*s, 0, 1, 2) }, targets(1), result{
			Approved: []string{"db-1"}}},
		"one of two members may go": {2, nil, targets(0), result{Approved: []string{"db-0"}}},
		"one of two members waits for the other": {2, func(s *plan.Snapshot) { sicken(*s, 1) }, targets(0), result{
			Rejected: []string{"db-0: without pod db-0, 0 members are healthy, and the store needs 1"}}},
		"the only member with a vote stays": {3, func(s *plan.Snapshot) { s.Store.Voters = []string{"db-1"} }, targets(1), result{
			Rejected: []string{"db-1: pod db-1 leads, and no other pod can: each has no vote, is not ready, or is about to be operated on"}}},
		"members without a vote do not count": {3, func(s *plan.Snapshot) {
			s.Store.Members = []string{"db-0", "db-1", "db-2", "db-5", "db-6", "db-7"}
		}, targets(2), result{Approved: []string{"db-2"}}},
		"the only member may go": {1, func(s *plan.Snapshot) { s.Store.Leader = "db-0" }, targets(0), result{Approved: []string{"db-0"}}},
		"the only member may go without an observation": {1, func(s *plan.Snapshot) { s.Store = plan.Observation{} }, targets(0), result{
			Approved: []string{"db-0"}}},
		"a pod of another UID waits": {3, nil, []plan.Target{{Name: "db-2", UID: "earlier"}}, result{
			Rejected: []string{"db-2: pod db-2 is not known to the operator yet"}}},
		"a pod that does not exist waits": {3, nil, targets(7), result{Rejected: []string{"db-7: pod db-7 is not known to the operator yet"}}},
		"pods of a cluster that is gone are approved": {3, func(s *plan.Snapshot) { s.Cluster = nil }, targets(0, 1, 2), result{
			Approved: []string{"db-0", "db-1", "db-2"}}},
		"pods of a StatefulSet that is deleted with its cluster are approved": {3, func(s *plan.Snapshot) {
			s.Cluster.DeletionTimestamp, s.StatefulSet = &now, nil
		}, targets(1), result{Approved: []string{"db-1"}}},
		"pods of a cluster that is backed up are not": {3, func(s *plan.Snapshot) { s.Cluster.DeletionTimestamp = &now }, targets(1), result{
			Rejected: []string{"db-1: leadership moves away from pod db-1"}, Move: &plan.Move{From: "db-1", To: []string{"db-0", "db-2"}}, Open: true}},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := store(tc.replicas)
			if tc.change != nil {
				tc.change(&s)
			}
			approval := plan.Approve(s, tc.targets)
			got := result{Move: approval.Move, Open: approval.Open}
			for _, target := range tc.targets {
				verdict := approval.Verdicts[target.Name]
				if verdict.Approved {
					got.Approved = append(got.Approved, target.Name)
				} else {
					got.Rejected = append(got.Rejected, fmt.Sprintf("%s: %s", target.Name, verdict.Reason))
				}
				if verdict.Reason == "" {
					t.Errorf("no reason for %s", target.Name)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestTheLastPodOfItsVersionLeadsUntilItIsPermitted upgrades a store up to the last pod, which leads.
func TestTheLastPodOfItsVersionLeadsUntilItIsPermitted(t *testing.T) {
	w := created(t, 3, kvstorev1.RollingUpdateUpgradeStrategy)
	w.edit(func(s *kvstorev1.KVStoreClusterSpec) { s.Version = better })
	for range 100 {
		w.operate(1000)
		if u := w.cluster.Status.Upgrade; u != nil && u.Ordinal == 0 && u.Step == kvstorev1.StepWaiting {
			break
		}
		w.controllers()
		w.now = w.now.Add(time.Second)
	}
	w.leader, w.observed = 0, w.now
	decide := func() plan.Decision {
		t.Helper()
		d := plan.Decide(w.snapshot(), settings(), w.now)
		if u := d.Status.Upgrade; u == nil || u.Ordinal != 0 || u.Step != kvstorev1.StepWaiting {
			t.Fatalf("the last pod does not wait: %+v", u)
		}
		return d
	}
	if d := decide(); d.Begin == nil || d.MoveLeader != nil {
		t.Errorf("before the operation has begun: begins %v, moves %+v", d.Begin, d.MoveLeader)
	}
	w.pods[0].begun[plan.Upgrade] = true
	if d := decide(); d.MoveLeader != nil {
		t.Errorf("before the permit: moves %+v", d.MoveLeader)
	}
	w.pods[1].version = good
	if d := decide(); d.MoveLeader == nil {
		t.Error("another pod has the version, too: does not move")
	}
	w.pods[1].version = better
	w.pods[0].allowed[plan.Upgrade] = true
	want := &plan.Move{From: "db-0", To: []string{"db-2", "db-1"}}
	if diff := cmp.Diff(want, decide().MoveLeader); diff != "" {
		t.Errorf("after the permit (-want +got):\n%s", diff)
	}
}
