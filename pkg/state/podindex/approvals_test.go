package podindex_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/approval"
	"github.com/podops-dev/podops/pkg/state/podindex"
	"github.com/podops-dev/podops/test/builders"
)

// approvalRule requires an approval of the pods with app=web.
func (x *index) approvalRule(name string) *appsv1alpha1.PodTransitionRule {
	object := x.rule(name)
	object.Spec.Rules = []appsv1alpha1.TransitionRule{{Name: "approval", Approval: &appsv1alpha1.ApprovalRule{MinApprovals: 1}}}
	return object
}

func newApproval(name, workload string) *appsv1alpha1.PodOperationApproval {
	return &appsv1alpha1.PodOperationApproval{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       appsv1alpha1.PodOperationApprovalSpec{Workload: appsv1alpha1.ApprovalWorkload{Kind: "Deployment", Name: workload}},
	}
}

// TestApprovals has a pod of a Deployment wait: the snapshot has the decisions about it, and each change of them is a notification.
func TestApprovals(t *testing.T) {
	x := newIndex(t)
	first := newApproval("1", "deploy")
	x.step(t, "no rule reads it", func() { x.SetApproval(first) })
	deployment, set := workload("deploy", "", 3), revised("rs-1", 1, 1, 3)
	deployment.Kind, deployment.Name, deployment.Processed = "Deployment", "deploy", true
	set.TemplateLabels = map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: "h1"}
	deployment.Template, set.Template, deployment.Author = "aa", "aa", "carol"
	x.SetOwner(deployment)
	x.SetOwner(set)
	x.put(builders.MakePod("web").OwnedBy(metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "rs-1", UID: "rs-1"}).
		Available().Waiting("a", "upgrade", builders.Epoch).Obj())
	want := func(what string, want map[types.UID]approval.Workload) {
		t.Helper()
		if diff := cmp.Diff(want, x.Snapshot("default", nil).Approvals); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	want("without a rule of the kind", nil)
	x.SetRule(x.approvalRule("web"))
	found := approval.Workload{
		Kind: "Deployment", Name: "deploy", Revision: "aa", Hash: "h1", Author: "carol", Decisions: []*appsv1alpha1.PodOperationApproval{first},
	}
	only := func(found approval.Workload) map[types.UID]approval.Workload {
		return map[types.UID]approval.Workload{"deploy": found}
	}
	want("with one", only(found))
	x.step(t, "a decision", func() { x.SetApproval(newApproval("2", "other")) }, "default")
	want("about another workload", only(found))

	set.Template = "ab"
	x.SetOwner(set)
	unknown := found
	unknown.Revision, unknown.Hash, unknown.Author = "", "", ""
	want("the Deployment has another template than its newest ReplicaSet", only(unknown))
	deployment.Recreates = true
	x.SetOwner(deployment)
	recreated := found
	recreated.Hash = ""
	want("it has the strategy Recreate", only(recreated))
	deployment.Recreates, deployment.Paused = false, true
	x.SetOwner(deployment)
	paused := found
	paused.Revision, paused.Author = "ab", ""
	want("it is paused", only(paused))

	x.step(t, "a decision is deleted", func() { x.DeleteApproval(first) }, "default")
	paused.Decisions = nil
	want("no decision", only(paused))
}

// TestApprovalsOfAStatefulSet has the revision of the template only once its controller has processed it.
func TestApprovalsOfAStatefulSet(t *testing.T) {
	x := newIndex(t)
	x.SetRule(x.approvalRule("web"))
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db", UID: "db", Generation: 2}}
	set.Spec.Template.Labels = map[string]string{"app": "web", appsv1alpha1.ControlLabelKey: "true"}
	set.Status.UpdateRevision, set.Status.ObservedGeneration = "h1", 1
	approval.Stamp(set)
	add := func() {
		t.Helper()
		owner, ok := podindex.NewOwner(set)
		if !ok {
			t.Fatal("a StatefulSet is no owner")
		}
		x.SetOwner(owner)
	}
	add()
	x.put(builders.MakePod("db-0").OwnedBy(metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "db"}).
		Available().Waiting("a", "upgrade", builders.Epoch).Obj())
	if got := x.Snapshot("default", nil).Approvals["db"]; got.Revision != "" || got.Hash != "h1" {
		t.Errorf("before: %+v", got)
	}
	set.Status.ObservedGeneration = 2
	add()
	if got := x.Snapshot("default", nil).Approvals["db"]; got.Revision != approval.Revision(&set.Spec.Template) {
		t.Errorf("after: %+v", got)
	}
}
