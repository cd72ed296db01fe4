package e2e_test

import (
	"context"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/test/audit"
	"github.com/podops-dev/podops/test/expect"
)

// kube-controller-manager runs without --use-service-account-credentials here, its default:
// the garbage collector, the taint manager and the ReplicaSet controller share one user, so
// their deletes differ only by the pod and the cause.
var _ = Describe("Where all controllers share one user", Ordered, func() {
	const controllers = "system:kube-controller-manager"
	var shared *cluster
	var p scenario

	BeforeAll(func(ctx context.Context) {
		shared = startCluster(ctx, "--one-identity")
		newManagerSet(shared).start(ctx)
	})
	BeforeEach(func(ctx context.Context) {
		p = newScenarioOn(ctx, shared)
		p.rule(ctx, approved())
	})

	DescribeTable("a deleted Deployment is deleted with its pods",
		func(ctx context.Context, propagation metav1.DeletionPropagation) {
			deployment := p.deployment(ctx, 4, nil)
			Expect(p.admin.Delete(ctx, deployment, client.PropagationPolicy(propagation))).To(Succeed())
			Eventually(ctx, p.list).Should(BeEmpty())
		},
		Entry("in the foreground", metav1.DeletePropagationForeground),
		Entry("in the background", metav1.DeletePropagationBackground),
	)

	It("a deleted Deployment is deleted with pods whose deletes are deferred", func(ctx context.Context) {
		deployment := p.deployment(ctx, 4, nil)
		p.scale(ctx, deployment, 1)
		Eventually(ctx, p.list).Should(ContainElement(expect.BeWaiting(podDelete)))
		Expect(p.admin.Delete(ctx, deployment, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
		Eventually(ctx, p.list).Should(BeEmpty())
	})

	It("pods are evicted from a node with a NoExecute taint", func(ctx context.Context) {
		p.deployment(ctx, 6, nil)
		tainted := p.list(ctx)[0].Spec.NodeName
		onNode := func(ctx context.Context) []*corev1.Pod {
			var found []*corev1.Pod
			for _, pod := range p.list(ctx) {
				if pod.Spec.NodeName == tainted {
					found = append(found, pod)
				}
			}
			return found
		}
		Expect(onNode(ctx)).NotTo(BeEmpty())
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: tainted}}
		p.patch(ctx, node, `{"spec":{"taints":[{"key":"e2e.podops.dev/broken","effect":"NoExecute"}]}}`)
		DeferCleanup(func(ctx context.Context) { p.patch(ctx, node, `{"spec":{"taints":null}}`) })
		Eventually(ctx, onNode).Should(BeEmpty())
		p.awaitAvailable(ctx, 6)
	})

	DescribeTable("pods of scale-downs wait",
		func(ctx context.Context, left int, change func(context.Context, client.Object)) {
			deployment := p.deployment(ctx, 4, nil)
			before := p.list(ctx)
			whole := openLedger(p)
			change(ctx, deployment)
			Eventually(ctx, p.list).Should(ContainElement(expect.BeWaiting(podDelete)))
			Consistently(ctx, p.list).Should(WithTransform(uids, ContainElements(uids(before))))
			Expect(whole.byAllUsers(audit.On("replicasets"), audit.InNamespace(p.namespace), audit.User(controllers))).
				NotTo(BeEmpty(), "the Deployment controller writes as %s", controllers)
			for _, request := range whole.byAllUsers(audit.Verb("delete"), audit.On("pods"), audit.InNamespace(p.namespace)) {
				Expect(request.Code).To(Equal(http.StatusTooManyRequests), "no pod may be deleted yet")
			}

			for _, pod := range before {
				p.label(ctx, pod, approvedLabel, "true")
			}
			Eventually(ctx, p.list).Should(And(HaveLen(left), expect.All(expect.BeAvailable())))
		},
		Entry("in a scale-in", 2, func(ctx context.Context, deployment client.Object) { p.scale(ctx, deployment, 2) }),
		Entry("in a rollout", 4, func(ctx context.Context, _ client.Object) {
			p.kubectl(ctx, "--namespace", p.namespace, "rollout", "restart", "deployment/web")
		}),
	)
})
