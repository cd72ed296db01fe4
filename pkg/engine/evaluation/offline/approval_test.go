package offline_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/approval"
	"github.com/podops-dev/podops/pkg/engine/evaluation/offline"
)

// TestApprovalsAreCounted evaluates a rule of kind approval for the pods of a StatefulSet that is updated, as kubectl podops eval does.
func TestApprovalsAreCounted(t *testing.T) {
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "cart", UID: "cart"}}
	set.Spec.Template.Labels = map[string]string{"app": "cart", appsv1alpha1.ControlLabelKey: "true"}
	set.Status.UpdateRevision, set.Status.CurrentRevision = "new", "old"
	metav1.SetMetaDataAnnotation(&set.ObjectMeta, appsv1alpha1.TemplateAuthorAnnotationKey,
		approval.AuthorAnnotation("", approval.Revision(&set.Spec.Template), "carol"))
	for name, tc := range map[string]struct {
		approver string
		want     string
	}{
		"no decision":  {"", "cart-0 Withheld NotApproved"},
		"the author":   {"carol", "cart-0 Withheld NotApproved"},
		"another user": {"alice", "cart-0 Permitted"},
	} {
		t.Run(name, func(t *testing.T) {
			objects := fleet(appsv1alpha1.TransitionRule{Name: "approval", Approval: &appsv1alpha1.ApprovalRule{MinApprovals: 1}})
			for _, pod := range objects.Pods {
				pod.Labels[appsv1alpha1.ControlLabelKey], pod.Labels[appsv1.ControllerRevisionHashLabelKey] = "true", "old"
				pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "cart", UID: "cart", Controller: new(true)}}
			}
			objects.Add(set, "shop")
			if tc.approver != "" {
				objects.Add(&appsv1alpha1.PodOperationApproval{
					ObjectMeta: metav1.ObjectMeta{Name: "1", CreationTimestamp: metav1.NewTime(now.Add(-time.Minute))},
					Spec: appsv1alpha1.PodOperationApprovalSpec{
						Workload: appsv1alpha1.ApprovalWorkload{Kind: "StatefulSet", Name: "cart"}, Revision: approval.Revision(&set.Spec.Template),
						Decision: appsv1alpha1.ApprovalApprove, Approver: tc.approver,
					},
				}, "shop")
			}
			got := summary(t, beginAll(t, objects, offline.Operation{Type: appsv1alpha1.DeleteOperationType}))
			if got[0] != tc.want {
				t.Errorf("want %s, got %v", tc.want, got)
			}
		})
	}
}
