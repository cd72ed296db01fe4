package e2e_test

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/audit"
	"github.com/podops-dev/podops/test/expect"
)

// disruptionBudget creates a PodDisruptionBudget of the pods of the scenario, and waits until the disruption
// controller has counted them.
func (p scenario) disruptionBudget(ctx context.Context, name, maxUnavailable string) *policyv1.PodDisruptionBudget {
	GinkgoHelper()
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: name},
		Spec: policyv1.PodDisruptionBudgetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, MaxUnavailable: intOrString(maxUnavailable),
		},
	}
	Expect(p.admin.Create(ctx, budget)).To(Succeed())
	Eventually(ctx, func(ctx context.Context) (policyv1.PodDisruptionBudgetStatus, error) {
		err := p.admin.Get(ctx, client.ObjectKeyFromObject(budget), budget)
		return budget.Status, err
	}).Should(And(HaveField("ObservedGeneration", budget.Generation), HaveField("ExpectedPods", BeNumerically(">", 0))))
	return budget
}

// evict creates an Eviction of a pod.
func (p scenario) evict(ctx context.Context, pod *corev1.Pod) error {
	return p.admin.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}})
}

var _ = Describe("A PodDisruptionBudget", func() {
	var p scenario

	BeforeEach(func(ctx context.Context) { p = newScenario(ctx) })

	It("counts like a rule, and leaves its disruption to the pod that is prepared", Label(mainStories), func(ctx context.Context) {
		p.rule(ctx, maxUnavailable("2"))
		p.deployment(ctx, 4, nil)
		p.disruptionBudget(ctx, "web", "1")
		observer := observe(p)
		before := p.list(ctx)
		for _, pod := range before {
			p.begin(ctx, pod, "drain", "delete")
		}

		By("permitting one pod, and naming the PodDisruptionBudget on the others")
		Eventually(ctx, p.list).Should(WithTransform(operable("drain"), Equal(1)))
		explained := appsv1alpha1.DetailAnnotationKey("PodDisruptionBudget")
		Eventually(ctx, p.list).WithTimeout(patience).Should(ContainElement(HaveField("Annotations",
			HaveKeyWithValue(explained, ContainSubstring("PodDisruptionBudget web requires 3")))))

		By("evicting each pod once it may be operated on")
		for range before {
			var prepared *corev1.Pod
			Eventually(ctx, p.list).WithTimeout(patience).Should(ContainElement(expect.BeOperable("drain"), &prepared))
			Eventually(ctx, func(ctx context.Context) error { return client.IgnoreNotFound(p.evict(ctx, prepared)) }).Should(Succeed())
			Eventually(ctx, func(ctx context.Context) ([]*corev1.Pod, error) { return p.list(ctx), nil }).
				ShouldNot(ContainElement(HaveField("UID", prepared.UID)))
		}
		p.awaitAvailable(ctx, 4)
		Expect(uids(p.list(ctx))).NotTo(ContainElement(BeElementOf(uids(before))))
		Expect(observer.leastAvailable()).To(BeNumerically(">=", 3))
	})

	It("holds for a rollout, which ends", Label(mainStories), func(ctx context.Context) {
		p.rule(ctx, maxUnavailable("2"))
		deployment := p.deployment(ctx, 4, func(d *appsv1.Deployment) {
			d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxUnavailable: intOrString("2"), MaxSurge: intOrString("0")}
		})
		p.disruptionBudget(ctx, "web", "1")
		observer, ledger := observe(p), openLedger(p)
		before := p.list(ctx)
		p.patch(ctx, deployment, `{"spec":{"template":{"metadata":{"annotations":{"e2e.podops.dev/restarted":"yes"}}}}}`)
		Eventually(ctx, func(ctx context.Context) (int, error) {
			left := 0
			for _, pod := range p.list(ctx) {
				for _, old := range before {
					if pod.UID == old.UID {
						left++
					}
				}
			}
			return left, nil
		}).WithTimeout(3 * patience).Should(BeZero())
		p.awaitAvailable(ctx, 4)
		Expect(observer.leastAvailable()).To(BeNumerically(">=", 3), fmt.Sprintf("of %d pods", len(before)))
		records := ledger.byOperator(audit.On("poddisruptionbudgets"), audit.InNamespace(p.namespace))
		AddReportEntry("figures", fmt.Sprintf("%d lifecycles; writes of the PodDisruptionBudget %v", len(before), records.CountBy(byTargetAndCode)))
		Expect(records.Count(accepted)).To(BeNumerically("<=", len(before)), "one write of the record for each batch, here of one pod")
	})

	It("holds together with a second one of the same pods", func(ctx context.Context) {
		p.deployment(ctx, 4, nil)
		p.disruptionBudget(ctx, "one", "1")
		p.disruptionBudget(ctx, "three", "3")
		for _, pod := range p.list(ctx) {
			p.begin(ctx, pod, "upgrade", "upgrade")
		}
		Eventually(ctx, p.list).Should(WithTransform(operable("upgrade"), Equal(1)))
		Consistently(ctx, p.list).Should(WithTransform(operable("upgrade"), Equal(1)))
	})
})
