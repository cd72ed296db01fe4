package e2e_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/expect"
)

var _ = Describe("Services behind expected finalizers", func() {
	const id = "updater"
	controller := serviceController{employer: "web"}

	It("releases pods during an operation when their Service is deleted, or selects other pods", func(ctx context.Context) {
		p := newScenario(ctx)
		kept, gone := p.service(ctx, "kept"), p.service(ctx, controller.employer)
		stop := act(p, controller.wants)
		p.pods(ctx, 2, controller.announce)
		for _, pod := range p.list(ctx) {
			p.begin(ctx, pod, id, "update")
		}
		Eventually(ctx, p.list).Should(expect.All(expect.BeOperable(id)))
		stop() // the controller of the Service is down from here on
		for _, pod := range p.list(ctx) {
			p.setLabels(ctx, pod, map[string]any{appsv1alpha1.OperatingLabelPrefix + "/" + id: nil})
		}
		complete := expect.HaveLabel(appsv1alpha1.CompleteLabelPrefix + "/" + id)
		Eventually(ctx, p.list).Should(expect.All(complete))
		Consistently(ctx, p.list).Should(expect.All(complete), "the operation must wait for the finalizer of the Service")

		By("having the Service select other pods")
		p.patch(ctx, gone, `{"spec":{"selector":{"app":"other"}}}`)
		p.awaitAvailable(ctx, 2)
		Expect(p.list(ctx)).To(HaveEach(Not(HaveField("Annotations", HaveKey(appsv1alpha1.AvailableConditionsAnnotationKey)))))

		By("expecting a finalizer of an available pod")
		expected := serviceController{employer: kept.Name}.expected(p.namespace)
		for _, pod := range p.list(ctx) {
			p.patch(ctx, pod, `{"metadata":{"annotations":{%q:%q}}}`, appsv1alpha1.AvailableConditionsAnnotationKey, expected)
		}
		Consistently(ctx, p.list).Should(HaveEach(And(expect.BeAvailable(), HaveField("Annotations", HaveKeyWithValue(appsv1alpha1.AvailableConditionsAnnotationKey, expected)))))

		By("deleting the Service")
		Expect(p.admin.Delete(ctx, kept)).To(Succeed())
		Eventually(ctx, p.list).Should(HaveEach(Not(HaveField("Annotations", HaveKey(appsv1alpha1.AvailableConditionsAnnotationKey)))))
		Expect(p.list(ctx)).To(HaveEach(expect.BeAvailable()))
	})

	It("makes a pod available whose Service never existed", func(ctx context.Context) {
		p := newScenario(ctx)
		p.pod(ctx, "web", func(pod *corev1.Pod) { controller.announce(pod) })
		p.awaitAvailable(ctx, 1)
	})
})
