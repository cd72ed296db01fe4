package e2e_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/expect"
)

var _ = Describe("kubectl podops unstick", func() {
	const id = appsv1alpha1.PodOperationIDPrefix + "gone"

	It("cancels an operation whose request is gone, with a reason, and nothing else", func(ctx context.Context) {
		p := newScenario(ctx)
		p.rule(ctx, approved())
		p.pods(ctx, 2, nil)
		stuck, waiting := p.list(ctx)[0], p.list(ctx)[1]
		p.begin(ctx, stuck, id, "restart")
		p.begin(ctx, waiting, "upgrade", "update")
		Eventually(ctx, p.seeing(stuck.Name)).Should(expect.BeWaiting(id))
		Eventually(ctx, p.seeing(waiting.Name)).Should(expect.BeWaiting("upgrade"))

		By("printing what it would do")
		out, _, code := p.podops(ctx, "unstick", "-n", p.namespace, "pod/"+stuck.Name)
		Expect(code).To(Equal(0))
		Expect(out).To(And(ContainSubstring("cancel the operation restart of id "+id), ContainSubstring("Nothing was changed")))
		Expect(p.get(ctx, stuck.Name)).To(expect.BeWaiting(id))

		By("refusing without a reason, and on a pod that is not stuck")
		_, complaints, code := p.podops(ctx, "unstick", "-n", p.namespace, "pod/"+stuck.Name, "--yes")
		Expect(code).To(Equal(1))
		Expect(complaints).To(ContainSubstring("--yes needs --reason"))
		_, complaints, code = p.podops(ctx, "unstick", "-n", p.namespace, "pod/"+waiting.Name, "--yes", "--reason", "INC-1")
		Expect(code).To(Equal(1))
		Expect(complaints).To(ContainSubstring("is not stuck: it waits for PreCheck rules"))

		By("doing it")
		_, complaints, code = p.podops(ctx, "unstick", "-n", p.namespace, "pod/"+stuck.Name, "--yes", "--reason", "INC-1: the operation was deleted")
		Expect(code).To(Equal(0), complaints)
		Eventually(ctx, p.seeing(stuck.Name)).Should(And(expect.BeAvailable(), expect.HaveNoLifecycle()))
		Expect(p.get(ctx, stuck.Name).Annotations).To(HaveKeyWithValue(appsv1alpha1.UnstuckAnnotationKey, ContainSubstring("INC-1: the operation was deleted")))
		Expect(p.notes("Unstuck")(ctx)).To(ConsistOf(HavePrefix("INC-1: the operation was deleted (")))
		Expect(p.get(ctx, waiting.Name)).To(expect.BeWaiting("upgrade"))
	})

	It("removes the finalizer of a controller that is gone", func(ctx context.Context) {
		p := newScenario(ctx)
		const orphan = appsv1alpha1.ProtectionFinalizerPrefix + "/gone"
		p.pods(ctx, 1, func(pod *corev1.Pod) { pod.Finalizers = []string{orphan} })
		p.begin(ctx, p.get(ctx, "web-00"), "upgrade", "update")
		Eventually(ctx, p.seeing("web-00")).Should(expect.HaveGate(corev1.ConditionFalse))
		Consistently(ctx, p.seeing("web-00")).ShouldNot(expect.BeOperable("upgrade"))
		out, complaints, code := p.podops(ctx, "unstick", "-n", p.namespace, "web-00", "--yes", "--reason", "the adapter was removed")
		Expect(code).To(Equal(0), complaints)
		Expect(out).To(And(ContainSubstring("remove finalizer "+orphan), ContainSubstring("lost: nothing")))
		Eventually(ctx, p.seeing("web-00")).Should(expect.BeOperable("upgrade"))
	})
})
