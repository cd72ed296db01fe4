package manifests_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
)

var _ = Describe("The policy for PodDisruptionBudgets of the manager", Ordered, func() {
	const record = appsv1alpha1.PermitsAnnotationKey
	var (
		namespace string
		manager   client.Client
	)
	newBudget := func(ctx context.Context) *policyv1.PodDisruptionBudget {
		GinkgoHelper()
		budget := &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "web-", Annotations: map[string]string{"note": "x", record: "{}"}},
			Spec: policyv1.PodDisruptionBudgetSpec{
				MaxUnavailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			},
		}
		Expect(server.admin.Create(ctx, budget)).To(Succeed())
		return budget
	}
	patch := func(ctx context.Context, c client.Client, budget *policyv1.PodDisruptionBudget, text string, options ...client.PatchOption) error {
		return c.Patch(ctx, budget, client.RawPatch(types.MergePatchType, []byte(text)), options...)
	}

	BeforeAll(func(ctx context.Context) {
		namespace, manager = newNamespace(ctx), asManager()
		probe := newBudget(ctx)
		Eventually(func() error {
			return patch(ctx, manager, probe, `{"metadata":{"labels":{"app":"other"}}}`, client.DryRunAll)
		}).Should(Satisfy(apierrors.IsForbidden))
	})

	DescribeTable("limits a patch", func(ctx context.Context, text, denied string) {
		err := patch(ctx, manager, newBudget(ctx), text)
		if denied == "" {
			Expect(err).NotTo(HaveOccurred())
			return
		}
		Expect(err).To(Satisfy(apierrors.IsForbidden))
		Expect(err).To(MatchError(ContainSubstring(denied)))
	},
		Entry("its record", `{"metadata":{"annotations":{"`+record+`":"{\"reserved\":{}}"}}}`, ""),
		Entry("the removal of its record", `{"metadata":{"annotations":{"`+record+`":null}}}`, ""),
		Entry("a new annotation", `{"metadata":{"annotations":{"more":"x"}}}`, "its own annotation of a PodDisruptionBudget only"),
		Entry("another annotation", `{"metadata":{"annotations":{"note":null}}}`, "its own annotation of a PodDisruptionBudget only"),
		Entry("more disruptions", `{"spec":{"maxUnavailable":2}}`, "the spec of a PodDisruptionBudget"),
		Entry("no pods", `{"spec":{"selector":{"matchLabels":{"app":"other"}}}}`, "the spec of a PodDisruptionBudget"),
		Entry("its labels", `{"metadata":{"labels":{"app":"other"}}}`, "labels, finalizers or owners"),
		Entry("its finalizers", `{"metadata":{"finalizers":["example.com/x"]}}`, "labels, finalizers or owners"),
		Entry("its owners", `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"1"}]}}`, "labels, finalizers or owners"),
	)

	It("conflicts with a change since the manager has read it", func(ctx context.Context) {
		read := newBudget(ctx)
		Expect(patch(ctx, server.admin, read.DeepCopy(), `{"metadata":{"annotations":{"note":"y"}}}`)).To(Succeed())
		text := `{"metadata":{"uid":"` + string(read.UID) + `","resourceVersion":"` + read.ResourceVersion + `","annotations":{"` + record + `":"{}"}}}`
		Expect(patch(ctx, manager, read, text)).To(Satisfy(apierrors.IsConflict))
	})

	It("conflicts with another PodDisruptionBudget of the name", func(ctx context.Context) {
		read := newBudget(ctx)
		Expect(server.admin.Delete(ctx, read)).To(Succeed())
		another := read.DeepCopy()
		another.ResourceVersion, another.UID = "", ""
		Expect(server.admin.Create(ctx, another)).To(Succeed())
		text := `{"metadata":{"uid":"` + string(read.UID) + `","resourceVersion":"` + read.ResourceVersion + `","annotations":{"` + record + `":"{}"}}}`
		Expect(patch(ctx, manager, read, text)).To(Satisfy(apierrors.IsConflict))
	})

	It("lets users change everything", func(ctx context.Context) {
		Expect(patch(ctx, server.admin, newBudget(ctx), `{"metadata":{"annotations":{"note":null}},"spec":{"maxUnavailable":2}}`)).To(Succeed())
	})
})
