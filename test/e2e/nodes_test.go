package e2e_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/view/doctor"
	"github.com/podops-dev/podops/test/expect"
)

// between is the time between two deletes of a program that empties a node past its deadline. Karpenter waits longer.
const between = 2 * time.Second

var _ = Describe("A node past its deadline, in the manner of Karpenter", func() {
	It("waits for a rule, is named by doctor, and is empty once maxHold releases the pods", func(ctx context.Context) {
		p := newScenario(ctx)
		rule := p.rule(ctx, approved())
		p.deployment(ctx, 2, func(deployment *appsv1.Deployment) {
			deployment.Spec.Template.Spec.TerminationGracePeriodSeconds = new(int64(30))
		})
		node := p.list(ctx)[0].Spec.NodeName
		DeferCleanup(func(ctx context.Context) { p.kubectl(ctx, "taint", "node", node, "karpenter.sh/disrupted-") })
		p.kubectl(ctx, "taint", "node", node, "karpenter.sh/disrupted:NoSchedule")
		onNode := func(ctx context.Context) []*corev1.Pod {
			var found []*corev1.Pod
			for _, pod := range p.list(ctx) {
				if pod.Spec.NodeName == node {
					found = append(found, pod)
				}
			}
			return found
		}
		before := onNode(ctx)
		karpenter := p.as("karpenter", []string{"system:masters"})
		for _, pod := range before {
			Expect(karpenter.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}})).To(expect.BeRefused(429))
		}

		By("repeating deletes with a grace period of 1 s")
		round := func(ctx context.Context) []error {
			var refusals []error
			for _, pod := range onNode(ctx) {
				err := karpenter.Delete(ctx, pod, client.GracePeriodSeconds(1), client.Preconditions{UID: &pod.UID})
				if err != nil && !apierrors.IsNotFound(err) {
					refusals = append(refusals, err)
				}
			}
			return refusals
		}
		waits := func() []doctor.Finding {
			var found []doctor.Finding
			for _, finding := range p.diagnosed(ctx).Findings {
				if finding.Check == "node-waits" {
					found = append(found, finding)
				}
			}
			return found
		}
		Eventually(ctx, func(ctx context.Context) []doctor.Finding {
			Expect(round(ctx)).To(HaveEach(expect.BeRefused(429)))
			return waits()
		}).WithPolling(between).Should(ConsistOf(And(
			HaveField("Object", "node "+node), HaveField("Text", And(ContainSubstring("has the taint karpenter.sh/disrupted"), ContainSubstring("as karpenter requests"))),
			HaveField("Remedy", ContainSubstring("maxHold")),
		)))
		Expect(onNode(ctx)).To(And(WithTransform(uids, ConsistOf(uids(before))), HaveEach(expect.BeAvailable())), "its pods serve")

		By("bounding the wait")
		p.patch(ctx, rule, `{"spec":{"maxHold":"3s","onMaxHold":%q}}`, appsv1alpha1.HoldRelease)
		Eventually(ctx, func(ctx context.Context) []*corev1.Pod {
			_ = round(ctx)
			return onNode(ctx)
		}).WithPolling(between).WithTimeout(patience).Should(BeEmpty())
		p.awaitAvailable(ctx, 2)
		Expect(waits()).To(BeEmpty())
	})
})
