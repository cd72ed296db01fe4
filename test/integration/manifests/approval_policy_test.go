package manifests_test

import (
	"context"
	"encoding/json"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

// The webhook of this suite allows each review and changes nothing, as if no manager ran.
var _ = Describe("The author of a pod template, without a manager", func() {
	const key = appsv1alpha1.TemplateAuthorAnnotationKey
	hash := strings.Repeat("a", 64)
	var namespace string

	BeforeEach(func(ctx context.Context) { namespace = newNamespace(ctx) })

	newDeployment := func(author string) *appsv1.Deployment {
		labels := map[string]string{"app": "web", appsv1alpha1.ControlLabelKey: appsv1alpha1.ControlLabelValue}
		deployment := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
			Spec: appsv1.DeploymentSpec{
				Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:v1"}}},
				},
			},
		}
		if author != "" {
			deployment.Annotations = map[string]string{key: author}
		}
		return deployment
	}
	refused := And(Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring("is set by PodOps to the user who changes the pod template: leave it out")))

	It("is no other user", func(ctx context.Context) {
		mallory := as("mallory", []string{"system:masters"})
		for _, author := range []string{
			hash + " eve", hash + " eve mallory", hash + "  mallory", "mallory", "x mallory", hash + " mallory ", hash, " mallory",
		} {
			Expect(mallory.Create(ctx, newDeployment(author))).To(refused, author)
		}
		deployment := newDeployment(hash + " mallory")
		Expect(mallory.Create(ctx, deployment)).To(Succeed())

		eve := as("eve", []string{"system:masters"})
		change := func(author any, template string) client.Patch {
			raw, err := json.Marshal(map[string]any{
				"metadata": map[string]any{"annotations": map[string]any{key: author}},
				"spec":     map[string]any{"template": map[string]any{"metadata": map[string]any{"annotations": map[string]any{"rolled": template}}}},
			})
			Expect(err).NotTo(HaveOccurred())
			return client.RawPatch(types.MergePatchType, raw)
		}
		Expect(eve.Patch(ctx, deployment.DeepCopy(), change(hash+" mallory", "1"))).To(Succeed(), "it stays, and is of another template")
		Expect(eve.Patch(ctx, deployment.DeepCopy(), change(strings.Repeat("b", 64)+" mallory", "2"))).To(refused)
		Expect(eve.Patch(ctx, deployment.DeepCopy(), change(hash+" eve", "1"))).To(refused, "the template does not change")
		both := hash + " mallory\n" + strings.Repeat("b", 64) + " eve"
		Expect(eve.Patch(ctx, deployment.DeepCopy(), change(both+"\n"+hash+" mallory2", "4"))).To(refused)
		Expect(eve.Patch(ctx, deployment.DeepCopy(), change(both, "4"))).To(Succeed())
		By("rolling back to the first template, whose ReplicaSet had the first line, as another user")
		dan := as("dan", []string{"system:masters"})
		Expect(dan.Patch(ctx, deployment.DeepCopy(), change(hash+" mallory", "1"))).To(Succeed())
		Expect(eve.Patch(ctx, deployment.DeepCopy(), change(nil, "1"))).To(Succeed(), "it is not known then")
		Expect(eve.Patch(ctx, deployment.DeepCopy(), change(hash+" eve", "1"))).To(refused, "the template does not change")
		Expect(eve.Patch(ctx, deployment.DeepCopy(), change(hash+" eve", "3"))).To(Succeed())
	})

	It("leaves workloads alone that have none", func(ctx context.Context) {
		Expect(server.admin.Create(ctx, newDeployment(""))).To(Succeed())
	})
})

var _ = Describe("A PodOperationApproval, without a manager", func() {
	It("has the user who creates it as approver, and no other", func(ctx context.Context) {
		namespace := newNamespace(ctx)
		create := func(user, approver string) error {
			return as(user, []string{"system:masters"}).Create(ctx, &appsv1alpha1.PodOperationApproval{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "web-"},
				Spec: appsv1alpha1.PodOperationApprovalSpec{
					Workload: appsv1alpha1.ApprovalWorkload{Kind: "Deployment", Name: "web"}, Revision: strings.Repeat("a", 64),
					Decision: appsv1alpha1.ApprovalApprove, Approver: approver,
				},
			})
		}
		Expect(create("alice", "alice")).To(Succeed())
		Expect(create("alice", "bob")).To(MatchError(ContainSubstring("spec.approver must be the user who creates the approval, alice, or be left out")))
		Expect(create("alice", "Alice")).NotTo(Succeed())
		Expect(create("alice", "")).NotTo(Succeed())
	})
})
