package e2e_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/test/audit"
	"github.com/podops-dev/podops/test/expect"
)

var _ = Describe("A rollout of a Deployment", Label(mainStories), func() {
	It("replaces every pod, never makes more than 25 % unavailable, and costs at most 5 writes per pod", func(ctx context.Context) {
		const replicas = 12
		p := newScenario(ctx)
		p.rule(ctx, maxUnavailable("25%"))
		p.deployment(ctx, replicas, nil)
		before := p.list(ctx)
		ledger, observer := openLedger(p), observe(p)

		began := time.Now()
		p.kubectl(ctx, "--namespace", p.namespace, "rollout", "restart", "deployment/web")
		Eventually(ctx, p.list).WithTimeout(2 * patience).Should(And(
			HaveLen(replicas), expect.All(And(expect.BeAvailable(), expect.HaveNoLifecycle())),
			WithTransform(uids, Not(ContainElements(BeElementOf(uids(before)))))))
		took := time.Since(began)

		unavailable := replicas - observer.leastAvailable()
		old := map[string]bool{}
		for _, pod := range before {
			old[pod.Name] = true
		}
		writes := ledger.toPods()
		toOld, toNew := writes.Where(namedOneOf(old)), writes.Where(audit.Not(namedOneOf(old)))
		AddReportEntry("figures", fmt.Sprintf("took %.1fs; max unavailable %d of %d; writes per replaced pod %.2f; worst old pod %d, worst new pod %d; %v; rule writes %d",
			took.Seconds(), unavailable, replicas, float64(len(writes))/replicas, worst(toOld), worst(toNew), writes.CountBy(byTargetAndCode), len(ledger.toRules())))
		Expect(unavailable).To(BeNumerically("<=", 3))
		Expect(len(writes)).To(BeNumerically("<=", 5*replicas))
		// A rejected request has a cost, and counts above, but it writes nothing, and the
		// kubelet may be first at any single pod.
		toOld, toNew = toOld.Where(accepted), toNew.Where(accepted)
		Expect(worst(toOld)+worst(toNew)).To(BeNumerically("<=", 5+detailsWithin(took)), func() string {
			return "a pod and its successor:\n" + accounts(toOld) + accounts(toNew)
		})

		By("recording in events the changes of a pod and their causes")
		Eventually(ctx, func(ctx context.Context) ([]string, error) { return reasons(ctx, p, before[0].Name) }).Should(
			ContainElement("Permitted"))
	})
})

// byTargetAndCode is a key to count by: "patch pods/status 200".
func byTargetAndCode(e audit.Event) string { return fmt.Sprintf("%s %d", audit.ByTarget(e), e.Code) }

// reasons returns the reasons of the events of an object.
func reasons(ctx context.Context, p scenario, name string) ([]string, error) {
	list := &eventsv1.EventList{}
	if err := p.admin.List(ctx, list, client.InNamespace(p.namespace)); err != nil {
		return nil, err
	}
	var found []string
	for _, event := range list.Items {
		if event.Regarding.Name == name {
			found = append(found, event.Reason)
		}
	}
	return found, nil
}
