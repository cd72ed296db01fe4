package e2e_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/approvals"
	"github.com/podops-dev/podops/test/expect"
)

// beHeldInPostCheck matches a new pod that PostCheck rules keep off traffic.
func beHeldInPostCheck() OmegaMatcher {
	return And(expect.HaveLabel(appsv1alpha1.PostCheckLabelPrefix+"/"+appsv1alpha1.PodCreateID),
		expect.HaveGate(corev1.ConditionFalse), Not(expect.BeReady()), Not(expect.BeAvailable()))
}

var _ = Describe("A new pod", func() {
	var p scenario

	BeforeEach(func(ctx context.Context) { p = newScenario(ctx) })

	serves := func() OmegaMatcher { return And(expect.BeAvailable(), expect.BeReady(), expect.HaveNoLifecycle()) }

	DescribeTable("gets no traffic before it has passed the PostCheck rules",
		func(ctx context.Context, create func(context.Context) int) {
			p.rule(ctx, inEachPostCheck(approved()))
			count := create(ctx)
			Eventually(ctx, p.list).Should(And(HaveLen(count), HaveEach(beHeldInPostCheck())))
			Eventually(ctx, p.seeingRule("web")).Should(HaveField("Status.Waiting", BeEquivalentTo(count)))
			Consistently(ctx, p.list).Should(HaveEach(beHeldInPostCheck()))

			By("approving the pods")
			p.approve(ctx)
			Eventually(ctx, p.list).Should(And(HaveLen(count), HaveEach(serves())))
		},
		Entry("of a Deployment", func(ctx context.Context) int {
			Expect(p.admin.Create(ctx, &appsv1.Deployment{
				ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "web"},
				Spec: appsv1.DeploymentSpec{
					Replicas: new(int32(3)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: template(),
				},
			})).To(Succeed())
			return 3
		}),
		Entry("of a StatefulSet", func(ctx context.Context) int {
			Expect(p.admin.Create(ctx, &appsv1.StatefulSet{
				ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "web"},
				Spec: appsv1.StatefulSetSpec{
					Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: template(),
					PodManagementPolicy: appsv1.ParallelPodManagement,
				},
			})).To(Succeed())
			return 2
		}),
		Entry("of a DaemonSet", func(ctx context.Context) int {
			nodes := &corev1.NodeList{}
			Expect(p.admin.List(ctx, nodes)).To(Succeed())
			Expect(p.admin.Create(ctx, &appsv1.DaemonSet{
				ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "web"},
				Spec:       appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: template()},
			})).To(Succeed())
			return len(nodes.Items)
		}),
		Entry("of a custom owner", func(ctx context.Context) int {
			owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "clones"}}
			Expect(p.admin.Create(ctx, owner)).To(Succeed())
			p.pod(ctx, "web-00", func(pod *corev1.Pod) {
				pod.OwnerReferences = []metav1.OwnerReference{{
					APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, Controller: new(true),
				}}
			})
			return 1
		}),
	)

	It("of a rollout replaces an old pod once it has passed, and explain names the rule", func(ctx context.Context) {
		deployment := p.deployment(ctx, 3, func(deployment *appsv1.Deployment) {
			deployment.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxUnavailable: intOrString("0"), MaxSurge: intOrString("1")}
		})
		before, observer := p.list(ctx), observe(p)
		p.rule(ctx, inEachPostCheck(approved()))
		p.patch(ctx, deployment, `{"spec":{"template":{"metadata":{"annotations":{"revision":"2"}}}}}`)
		var held []*corev1.Pod
		Eventually(ctx, p.list).Should(And(HaveLen(4), ContainElement(beHeldInPostCheck(), &held)))
		Consistently(ctx, p.list).Should(And(HaveLen(4), WithTransform(uids, ContainElements(uids(before)))), "no old pod goes")
		Eventually(ctx, func() string {
			out, _, _ := p.podops(ctx, "explain", "pod/"+held[0].Name, "-n", p.namespace)
			return withoutLayout(out)
		}).Should(And(ContainSubstring("PostCheck"), ContainSubstring("web/approved-after")))

		By("approving each new pod")
		Eventually(ctx, func(ctx context.Context) []*corev1.Pod {
			pods := p.list(ctx)
			for _, pod := range pods {
				if _, waits := pod.Labels[appsv1alpha1.PostCheckLabelPrefix+"/"+appsv1alpha1.PodCreateID]; waits {
					p.label(ctx, pod, approvedLabel, "true")
				}
			}
			return pods
		}).WithTimeout(2 * patience).Should(And(HaveLen(3), HaveEach(serves()), WithTransform(uids, Not(ContainElement(BeElementOf(uids(before)))))))
		Expect(observer.leastAvailable()).To(Equal(3))
	})

	It("passes rules for operations of other types, and rules that come later", func(ctx context.Context) {
		p.rule(ctx, inPostCheck(approved()))
		p.pods(ctx, 2, nil)
		p.ruleNamed(ctx, "later", inEachPostCheck(approved()))
		Consistently(ctx, p.list).Should(HaveEach(serves()))
	})

	It("serves once the rule is deleted", func(ctx context.Context) {
		rule := p.rule(ctx, inEachPostCheck(approved()))
		p.pod(ctx, "web-00", nil)
		Eventually(ctx, p.list).Should(HaveEach(beHeldInPostCheck()))
		Expect(p.admin.Delete(ctx, rule)).To(Succeed())
		Eventually(ctx, p.list).Should(HaveEach(serves()))
	})

	It("can be deleted while the rules withhold it", func(ctx context.Context) {
		p.rule(ctx, maxUnavailable("1"), inEachPostCheck(approved()))
		pod := p.pod(ctx, "web-00", nil)
		Eventually(ctx, p.list).Should(HaveEach(beHeldInPostCheck()))
		p.kubectl(ctx, "delete", "pod", pod.Name, "--namespace", p.namespace)
		Expect(p.list(ctx)).To(BeEmpty())
	})

	It("of a scale-out during an outage of the service follows failurePolicy", func(ctx context.Context) {
		address := freeAddress()
		rule := inEachPostCheck(webhookRule("http://" + address + "/approve"))
		rule.Conditions = []string{appsv1alpha1.CreateOperationType}
		ignoring, tolerant := *rule.DeepCopy(), newScenario(ctx)
		ignoring.Webhook.FailurePolicy = appsv1alpha1.FailurePolicyIgnore

		deployments := map[string]*appsv1.Deployment{p.namespace: p.deployment(ctx, 1, nil), tolerant.namespace: tolerant.deployment(ctx, 1, nil)}
		p.rule(ctx, rule)
		tolerant.rule(ctx, ignoring)
		p.scale(ctx, deployments[p.namespace], 3)
		tolerant.scale(ctx, deployments[tolerant.namespace], 3)
		Eventually(ctx, tolerant.list).WithTimeout(2 * patience).Should(And(HaveLen(3), HaveEach(serves())))
		Eventually(ctx, p.list).Should(And(HaveLen(3), ContainElements(beHeldInPostCheck(), beHeldInPostCheck())))
		Consistently(ctx, p.list).Should(ContainElements(beHeldInPostCheck(), beHeldInPostCheck()))

		By("opening the service")
		late := openApprovalService(nil, approvals.Options{HTTPAddress: address})
		Eventually(ctx, p.list).WithTimeout(2 * patience).Should(HaveEach(serves()))
		Expect(late.Approvals(p.namespace)).To(HaveLen(2))
	})
})
