package e2e_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/expect"
)

// haveGateMessage matches a pod whose gate has a message with all texts.
func haveGateMessage(texts ...string) OmegaMatcher {
	contains := make([]OmegaMatcher, len(texts))
	for i, text := range texts {
		contains[i] = ContainSubstring(text)
	}
	return HaveField("Status.Conditions", ContainElement(And(
		HaveField("Type", corev1.PodConditionType(appsv1alpha1.ServiceReadyGate)), HaveField("Message", And(contains...)))))
}

var _ = Describe("Traffic that does not change", func() {
	const id = "updater"
	controller := serviceController{employer: "web"}

	var p scenario
	var pod *corev1.Pod

	// expectShown waits until the pod reports the cause of its wait in its condition and in
	// an event, with the age of the wait, and until the rule counts it.
	expectShown := func(ctx context.Context, reason, event, text string) {
		GinkgoHelper()
		employer := "Service/" + p.namespace + "/" + controller.employer
		Eventually(ctx, p.seeing(pod.Name)).Should(And(haveGateReason(reason), haveGateMessage(employer, text, controller.finalizer())))
		described := func(ctx context.Context) string {
			stdout, _ := p.kubectl(ctx, "--namespace", p.namespace, "describe", "pod", pod.Name)
			return stdout
		}
		Eventually(ctx, described).Should(MatchRegexp(`Warning +%s .*waits for %s to confirm that %s.*%s.* for \d+s`, event, employer, text, controller.finalizer()))
	}

	BeforeEach(func(ctx context.Context) {
		p = newScenario(ctx)
		p.service(ctx, controller.employer)
		p.rule(ctx, maxUnavailable("50%"))
	})

	It("is reported by the pod, in an event and by the rule, until it changes", func(ctx context.Context) {
		stop := act(p, controller.wants)
		p.pods(ctx, 2, controller.announce)
		stop() // the controller of the Service is down from here on
		pod = p.list(ctx)[0]
		p.begin(ctx, pod, id, "update")
		expectShown(ctx, appsv1alpha1.ReasonPreparing, "TrafficStillOn", "traffic is off")
		Expect(p.get(ctx, pod.Name)).NotTo(expect.BeOperable(id))
		printed := func(ctx context.Context) [][]string {
			stdout, _ := p.kubectl(ctx, "--namespace", p.namespace, "get", "ptr")
			return columns(stdout)
		}
		Eventually(ctx, printed).Should(Equal([][]string{
			{"NAME", "DESIRED", "AVAILABLE", "WAITING", "OFF-TRAFFIC", "BLOCKED", "BY", "AGE"},
			{"web", "2", "1", "0", "1"},
		}))

		By("taking traffic off")
		p.patch(ctx, pod, `{"metadata":{"finalizers":null}}`)
		Eventually(ctx, p.seeing(pod.Name)).Should(And(expect.BeOperable(id), haveGateReason("")))

		By("keeping it off when the operation has ended")
		p.setLabels(ctx, p.get(ctx, pod.Name), map[string]any{appsv1alpha1.OperatingLabelPrefix + "/" + id: nil})
		expectShown(ctx, appsv1alpha1.ReasonCompleting, "TrafficNotOn", "traffic is on")
		Expect(p.get(ctx, pod.Name)).NotTo(expect.HaveLabel(appsv1alpha1.ServiceAvailableLabelKey))
		Eventually(ctx, printed).Should(ContainElement([]string{"web", "2", "1", "0", "1"}))

		By("putting it on")
		act(p, controller.wants)
		Eventually(ctx, p.seeing(pod.Name)).Should(And(expect.BeAvailable(), expect.HaveNoLifecycle(), haveGateReason("")))
		Eventually(ctx, printed).Should(ContainElement([]string{"web", "2", "2", "0", "0"}))
	})
})
