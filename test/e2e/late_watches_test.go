package e2e_test

import (
	"context"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/test/audit"
	"github.com/podops-dev/podops/test/expect"
)

var _ = Describe("A manager whose watches are late", func() {
	var p scenario
	var way *slowPath

	BeforeEach(func(ctx context.Context) {
		p = newScenario(ctx)
		p.rule(ctx, approved())
		way = openSlowPath(p)
		managers.stopAll()
		DeferCleanup(func(ctx context.Context) {
			way.releaseWatches()
			managers.stopAll()
			managers.start(ctx)
		})
		managers.start(ctx, "--kubeconfig", way.kubeconfig)
	})

	// replicas returns the numbers of all ReplicaSets.
	replicas := func(ctx context.Context) (numbers []int32) {
		list := &appsv1.ReplicaSetList{}
		Expect(p.admin.List(ctx, list, client.InNamespace(p.namespace))).To(Succeed())
		for _, set := range list.Items {
			numbers = append(numbers, *set.Spec.Replicas)
		}
		return numbers
	}

	DescribeTable("removes no pod of a scale-in that is withdrawn meanwhile",
		func(ctx context.Context, resource string, create func(context.Context) client.Object) {
			workload := create(ctx)
			before := p.list(ctx)
			p.scale(ctx, workload, 2)
			Eventually(ctx, p.list).Should(WithTransform(waitingFor(podDelete), Equal(2)))

			way.delayWatches(resource)
			p.scale(ctx, workload, 4)
			Eventually(ctx, replicas).Should(ConsistOf(BeEquivalentTo(4)))
			p.approve(ctx)
			Consistently(ctx, p.list).WithTimeout(3 * holdWindow).Should(WithTransform(uids, ConsistOf(uids(before))))

			way.releaseWatches()
			Eventually(ctx, p.list).WithTimeout(2 * patience).Should(HaveEach(And(expect.BeAvailable(), expect.HaveNoLifecycle())))
			Consistently(ctx, p.list).Should(WithTransform(uids, ConsistOf(uids(before))))
			Eventually(ctx, p.annotatedSets).Should(BeEmpty())
		},
		Entry("where it sees Deployments late", "deployments", func(ctx context.Context) client.Object { return p.deployment(ctx, 4, nil) }),
		Entry("where it sees the ReplicaSets of a Deployment late", "replicasets", func(ctx context.Context) client.Object { return p.deployment(ctx, 4, nil) }),
		Entry("where it sees ReplicaSets late", "replicasets", func(ctx context.Context) client.Object { return p.replicaSet(ctx, 4) }),
	)

	It("removes no pod of a scale-in that it never saw", func(ctx context.Context) {
		set := p.replicaSet(ctx, 4)
		before := p.list(ctx)
		requests := openLedger(p)
		way.delayWatches("replicasets")
		p.scale(ctx, set, 2)
		Eventually(ctx, func() audit.Events {
			return requests.byAllUsers(audit.On("pods"), audit.Verb("delete"), audit.InNamespace(p.namespace),
				func(e audit.Event) bool { return e.Code == http.StatusTooManyRequests })
		}).ShouldNot(BeEmpty())
		p.scale(ctx, set, 4)
		p.approve(ctx)
		Consistently(ctx, p.list).WithTimeout(3 * holdWindow).Should(WithTransform(uids, ConsistOf(uids(before))))
		way.releaseWatches()
		Eventually(ctx, p.list).WithTimeout(2 * patience).Should(HaveEach(And(expect.BeAvailable(), expect.HaveNoLifecycle())))
		Consistently(ctx, p.list).Should(WithTransform(uids, ConsistOf(uids(before))))
	})

	It("carries out a scale-in that it sees late", func(ctx context.Context) {
		set := p.replicaSet(ctx, 4)
		way.delayWatches("replicasets")
		p.scale(ctx, set, 2)
		p.scale(ctx, set, 5)
		p.scale(ctx, set, 3)
		approveOthers(p, nil)
		way.releaseWatches()
		Eventually(ctx, p.list).WithTimeout(2 * patience).Should(And(HaveLen(3), HaveEach(And(expect.BeAvailable(), expect.HaveNoLifecycle()))))
		Consistently(ctx, p.list).Should(HaveLen(3))
	})
})
