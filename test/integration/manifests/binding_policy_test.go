package manifests_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("The policy for pods/binding", Ordered, func() {
	var namespace string

	bind := func(ctx context.Context, meta metav1.ObjectMeta) (*corev1.Pod, error) {
		GinkgoHelper()
		pod := stored(ctx, newPod(namespace))
		meta.Namespace, meta.Name = pod.Namespace, pod.Name
		binding := &corev1.Binding{ObjectMeta: meta, Target: corev1.ObjectReference{Kind: "Node", Name: "node-1"}}
		err := server.admin.SubResource("binding").Create(ctx, pod, binding)
		Expect(server.admin.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
		return pod, err
	}

	BeforeAll(func(ctx context.Context) {
		namespace = newNamespace(ctx)
		Eventually(func() error {
			_, err := bind(ctx, metav1.ObjectMeta{Annotations: map[string]string{expectedAnnotation: "{}"}})
			return err
		}).Should(Satisfy(apierrors.IsForbidden))
	})

	It("lets the scheduler bind, with labels of the topology", func(ctx context.Context) {
		pod, err := bind(ctx, metav1.ObjectMeta{Labels: map[string]string{"topology.kubernetes.io/zone": "a"}, Annotations: map[string]string{"note": "x"}})
		Expect(err).NotTo(HaveOccurred())
		Expect(pod.Spec.NodeName).To(Equal("node-1"))
		Expect(pod.Annotations).To(HaveKeyWithValue("note", "x"))
	})

	DescribeTable("denies a binding with", func(ctx context.Context, meta metav1.ObjectMeta, named string) {
		pod, err := bind(ctx, meta)
		Expect(err).To(Satisfy(apierrors.IsForbidden))
		Expect(err).To(MatchError(ContainSubstring(named)))
		Expect(pod.Spec.NodeName).To(BeEmpty())
	},
		Entry("a permit", metav1.ObjectMeta{Labels: map[string]string{"operate.podopslifecycle.kusionstack.io/a": "1"}},
			"the label operate.podopslifecycle.kusionstack.io/a"),
		Entry("the availability of the pod", metav1.ObjectMeta{Labels: map[string]string{"podopslifecycle.kusionstack.io/service-available": "1"}},
			"the label podopslifecycle.kusionstack.io/service-available"),
		Entry("the control label", metav1.ObjectMeta{Labels: map[string]string{"kusionstack.io/control": "false"}},
			"the label kusionstack.io/control"),
		Entry("expected finalizers", metav1.ObjectMeta{Annotations: map[string]string{expectedAnnotation: "{}"}},
			"the annotation "+expectedAnnotation),
		Entry("rules to skip", metav1.ObjectMeta{Annotations: map[string]string{"podtransitionrule.kusionstack.io/skip-rule-conditions": "{}"}},
			"the annotation podtransitionrule.kusionstack.io/skip-rule-conditions"),
	)
})
