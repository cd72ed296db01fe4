package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/podops-dev/podops/test/audit"
	"github.com/podops-dev/podops/test/expect"
)

const (
	// idleWindow is how long no write may occur.
	idleWindow = 10 * time.Second

	// lastReport is longer than the time after which a PodTransitionRule reports the last change of its pods: 5 s, when
	// they have changed for some seconds.
	lastReport = 7 * time.Second

	newImage = "registry.example.com/web:v2"
)

var _ = Describe("Updating pods in place", func() {
	const pods = 40

	DescribeTable("costs few writes, and none once it is over",
		func(ctx context.Context, protected bool, bound int) {
			p := newScenario(ctx)
			service := serviceController{employer: "web"}
			announce := func(*corev1.Pod) {}
			if protected {
				announce = service.announce
				p.service(ctx, service.employer)
				act(p, service.wants)
			}
			p.rule(ctx, maxUnavailable("25%"))
			p.pods(ctx, pods, announce)
			for _, pod := range p.list(ctx) {
				Eventually(ctx, func(ctx context.Context) ([]string, error) { return reasons(ctx, p, pod.Name) }).Should(
					ContainElement("ServiceAvailable"), "the events of what was before must not count")
			}
			ledger, observer, batches := openLedger(p), observe(p), countBatches(p)

			began := time.Now()
			act(p, imageUpdater{id: "updater", image: newImage}.wants)
			p.awaitImage(ctx, pods, newImage)
			took := time.Since(began)

			writes, rules, seconds := ledger.toPods(), ledger.toRules(), ledger.seconds()
			AddReportEntry("figures", fmt.Sprintf("took %.1fs; writes per lifecycle %.2f, worst %d, %v; max unavailable %d; %d rule writes for batches %v",
				took.Seconds(), float64(len(writes))/pods, worst(writes), writes.CountBy(byTargetAndCode), pods-observer.leastAvailable(), len(rules), batches.all()))
			Expect(worst(writes.Where(accepted))).To(BeNumerically("<=", bound+detailsWithin(took)), func() string {
				return "writes to one pod:\n" + accounts(writes.Where(accepted))
			})
			Expect(len(writes)).To(BeNumerically("<=", (bound+detailsWithin(took))*pods+pods/4), "conflicts must be rare")
			Expect(pods-observer.leastAvailable()).To(Equal(pods/4), "the limit must be kept, and reached")
			Expect(len(rules)).To(BeNumerically("<=", len(batches.all())+seconds), "one write per batch, and one per second for readers of the status")
			expectIdle(ctx, p)

			By("recording two events for each lifecycle, and one more for the cause of its wait")
			events, all := ledger.byOperator(audit.On("events"), audit.InNamespace(p.namespace)), ledger.byOperator(audit.InNamespace(p.namespace))
			AddReportEntry("requests", fmt.Sprintf("%.2f requests per lifecycle, events %.2f; %v",
				float64(len(all))/pods, float64(len(events))/pods, all.CountBy(byTargetAndCode)))
			Expect(len(events)).To(BeNumerically("<=", (2+detailsWithin(took))*pods))
			Expect(len(ledger.toPods())).To(BeNumerically("<=", len(writes)+detailsWithin(took)*pods), "only reasons of waits are removed after the last lifecycle")
			Expect(len(ledger.toRules())).To(BeNumerically("<=", len(batches.all())+seconds+1), "one more write reports the last change")
			Expect(all).To(HaveLen(len(ledger.toPods())+len(events)+len(ledger.toRules())), "nothing else is written")
			for _, pod := range p.list(ctx) {
				Expect(reasons(ctx, p, pod.Name)).To(ContainElements("Permitted", "ServiceAvailable"), pod.Name)
			}
		},
		Entry("with a service controller: 2 writes and 2 events a lifecycle", Label(mainStories), true, 2),
		Entry("without one: 3 writes, since operate waits for Ready, and 2 events a lifecycle", false, 3),
	)

	It("reserves all pods that one change permits in one write of the rule", Label(mainStories), func(ctx context.Context) {
		p := newScenario(ctx)
		rule := p.rule(ctx, maxUnavailable("50%"), approved())
		p.pods(ctx, pods, nil)
		for _, pod := range p.list(ctx) {
			p.begin(ctx, pod, "updater", "update")
		}
		Eventually(ctx, p.seeingRule("web")).Should(HaveField("Status.Waiting", int32(pods)))
		batches := countBatches(p)

		p.patch(ctx, rule, `{"spec":{"rules":[{"name":"max-unavailable","availablePolicy":{"maxUnavailableValue":"50%%"}}]}}`)
		Eventually(ctx, p.list).Should(ContainElements(manyTimes(pods/2, expect.BeOperable("updater"))...))
		Eventually(batches.all).Should(Equal([]int{pods / 2}), "the batches that the watch of the scenario has seen")
		Consistently(ctx, p.list).ShouldNot(ContainElements(manyTimes(pods/2+1, expect.BePermitted("updater"))...))
	})
})

// expectIdle waits until the operator has written nothing for some seconds, and then checks
// that this continues. Leases are not in the audit log; refreshing a series of events is
// housekeeping of the client library, every few minutes.
func expectIdle(ctx context.Context, p scenario) {
	GinkgoHelper()
	// An event of a pod in a namespace that another scenario has just deleted is
	// housekeeping, too.
	housekeeping := func(e audit.Event) bool {
		return e.Resource == "events" && (e.Verb == "patch" || e.Code == http.StatusNotFound)
	}
	quiet := openLedger(p)
	Eventually(ctx, func() time.Duration {
		if len(quiet.byOperator(audit.Not(housekeeping))) > 0 {
			quiet = openLedger(p)
		}
		return time.Since(quiet.since)
	}).Should(BeNumerically(">", lastReport), "the operator must become idle")
	idle := openLedger(p)
	Consistently(ctx, func() audit.Events { return idle.byOperator(audit.Not(housekeeping)) }).
		WithTimeout(idleWindow).WithPolling(idleWindow / 10).Should(BeEmpty())
}

func imageOf(pod *corev1.Pod) string { return pod.Spec.Containers[0].Image }

// manyTimes returns the same matcher many times, for ContainElements, which matches each
// with another element.
func manyTimes(count int, matcher any) []any {
	matchers := make([]any, count)
	for i := range matchers {
		matchers[i] = matcher
	}
	return matchers
}
