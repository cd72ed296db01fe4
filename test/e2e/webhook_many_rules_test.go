package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/approvals"
)

const (
	// ruleLoadSize is the number of PodTransitionRules, each with one pod, spread over
	// services and namespaces.
	ruleLoadSize       = 500
	ruleLoadServices   = 5
	ruleLoadSilent     = 2 // of the services
	ruleLoadNamespaces = 5

	// memberLabel distinguishes the pods.
	memberLabel = "e2e.podops.dev/member"

	// ruleLoadPatience is how long 500 pods may take on a busy machine.
	ruleLoadPatience = 4 * patience

	// ruleLoadAtOnce bounds the concurrent requests of the scenario outside of measurements.
	ruleLoadAtOnce = 6

	// benchStories is the label of the scenarios with time limits. A busy machine must not
	// fail a test by them, so `make bench-calls` runs them.
	benchStories = "bench"

	// ruleLoadPace is how many pods begin per second: some 15 requests each, which two cores
	// that also run the control plane answer with time to spare.
	ruleLoadPace = 6

	// ruleLoadID is the id of the operations.
	ruleLoadID = "updater"
)

// ruleLoad is many rules that call few services, some of which never answer.
type ruleLoad struct {
	places   []scenario
	services []approvalService // the silent ones last
	members  []member
	watch    *stopwatch
}

// member is one rule and its pod.
type member struct {
	number   int
	scenario scenario
	name     string // of both
	silent   bool   // the service never answers
	pod      *corev1.Pod
}

// newRuleLoad creates rules and pods, and waits until the pods are available. Consecutive
// rules call different services, and every namespace has rules for each service.
func newRuleLoad(ctx context.Context) *ruleLoad {
	GinkgoHelper()
	c := &ruleLoad{}
	// The last of all cleanups: later scenarios find no terminating objects.
	DeferCleanup(func(ctx context.Context) {
		Eventually(ctx, c.leftovers).WithTimeout(ruleLoadPatience).Should(BeZero())
	})
	for range ruleLoadNamespaces {
		c.places = append(c.places, newScenario(ctx))
	}
	for range ruleLoadServices {
		c.services = append(c.services, openApprovalService(nil, approvals.Options{}))
	}
	for i := range ruleLoadSize {
		c.members = append(c.members, member{
			number: i, scenario: c.places[i/ruleLoadServices%ruleLoadNamespaces], name: fmt.Sprintf("crowd-%03d", i),
			silent: i%ruleLoadServices >= ruleLoadServices-ruleLoadSilent,
		})
	}
	By("creating rules and pods")
	atOnce(ruleLoadSize, func(i int) {
		m, path := &c.members[i], "/approve"
		if m.silent {
			path = "/hang"
		}
		m.scenario.ruleFor(ctx, m.name, map[string]string{memberLabel: m.name}, c.services[i%ruleLoadServices].callsOnce(path))
		m.pod = m.scenario.pod(ctx, m.name, func(pod *corev1.Pod) { pod.Labels[memberLabel] = m.name })
	})
	c.watch = newStopwatch(c.members)
	for _, p := range c.places {
		list := &corev1.PodList{}
		follow(p, list, func() []*corev1.Pod { return pointers(list.Items) }, func(_ watch.EventType, pod *corev1.Pod) {
			if c.watch.see(pod) {
				go c.callOff(context.Background(), p, pod)
			}
		})
	}
	By("waiting until the pods are available")
	c.awaitCalm(ctx)
	return c
}

// atOnce calls do for 0 to count-1, several at a time.
func atOnce(count int, do func(i int)) {
	var group errgroup.Group
	group.SetLimit(ruleLoadAtOnce)
	for i := range count {
		group.Go(func() error {
			defer GinkgoRecover()
			do(i)
			return nil
		})
	}
	_ = group.Wait() // a failure fails the scenario
}

// leftovers returns the number of pods that still exist.
func (c *ruleLoad) leftovers(ctx context.Context) int {
	pods := &corev1.PodList{}
	Expect(suiteCluster.admin.List(ctx, pods, client.HasLabels{memberLabel})).To(Succeed())
	return len(pods.Items)
}

// awaitCalm waits until every pod is available, and none has an operation.
func (c *ruleLoad) awaitCalm(ctx context.Context) {
	GinkgoHelper()
	Eventually(ctx, c.watch.calm).WithTimeout(ruleLoadPatience).Should(Equal(ruleLoadSize))
}

// awaitQuiet waits until no call runs or is queued.
func (c *ruleLoad) awaitQuiet(ctx context.Context, m *manager) {
	GinkgoHelper()
	Eventually(ctx, func() float64 {
		text := m.metrics(ctx)
		return reading(text, "podops_webhook_calls_running") + reading(text, "podops_webhook_calls_queued")
	}).WithTimeout(ruleLoadPatience).Should(BeZero())
}

// those returns the members whose services answer, or do not.
func (c *ruleLoad) those(silent bool) []member {
	return slices.DeleteFunc(slices.Clone(c.members), func(m member) bool { return m.silent != silent })
}

// round makes pods begin an operation, one after the other at a pace that leaves the
// machine idle time, so that no queue of the scenario's own is measured. An operation is
// cancelled as soon as it is permitted. round returns once all are.
func (c *ruleLoad) round(ctx context.Context, m *manager, beginning []member) round {
	GinkgoHelper()
	c.watch.restart()
	watched := gauge(ctx, m)
	atPace(ctx, len(beginning), func(i int) {
		one := beginning[i]
		c.watch.begin(one.pod.UID)
		one.scenario.begin(ctx, one.pod.DeepCopy(), ruleLoadID, "update")
	})
	Eventually(ctx, func() int { return len(c.watch.latencies()) }).WithTimeout(ruleLoadPatience).Should(Equal(len(beginning)), "permits of rules whose services answer")
	return round{latencies: c.watch.latencies(), gauged: watched()}
}

// atPace calls do count times, at the pace of the scenario, and returns when all calls are
// done. A slow call does not delay later ones.
func atPace(ctx context.Context, count int, do func(i int)) {
	GinkgoHelper()
	var group errgroup.Group
	pace := time.NewTicker(time.Second / ruleLoadPace)
	defer pace.Stop()
	for i := range count {
		select {
		case <-pace.C:
		case <-ctx.Done():
			Fail("the scenario has no time left")
		}
		group.Go(func() error {
			defer GinkgoRecover()
			do(i)
			return nil
		})
	}
	_ = group.Wait() // a failure fails the scenario
}

// callOff cancels the operation of a pod.
func (c *ruleLoad) callOff(ctx context.Context, p scenario, pod *corev1.Pod) {
	defer GinkgoRecover()
	p.setLabels(ctx, pod.DeepCopy(), map[string]any{undo + ruleLoadID: "update"})
}

// beginSilent makes the pods begin whose services never answer, and waits until the status
// of every rule lists its pod as blocked.
func (c *ruleLoad) beginSilent(ctx context.Context) {
	GinkgoHelper()
	silent := c.those(true)
	atOnce(len(silent), func(i int) { silent[i].scenario.begin(ctx, silent[i].pod.DeepCopy(), ruleLoadID, "update") })
	c.awaitBlocked(ctx, HaveField("Reason", HavePrefix("Webhook")))
}

// callOffSilent cancels their operations.
func (c *ruleLoad) callOffSilent(ctx context.Context) {
	GinkgoHelper()
	silent := c.those(true)
	atOnce(len(silent), func(i int) { c.callOff(ctx, silent[i].scenario, silent[i].pod) })
}

// awaitBlocked waits until exactly the pods whose services never answer are blocked in the
// status of their rules, in a way that matches.
func (c *ruleLoad) awaitBlocked(ctx context.Context, how types.GomegaMatcher) {
	GinkgoHelper()
	blocked := func(ctx context.Context) map[string]appsv1alpha1.BlockedPod {
		pods := map[string]appsv1alpha1.BlockedPod{}
		for _, p := range c.places {
			for _, rule := range p.listRules(ctx) {
				for _, pod := range rule.Status.Blocked {
					pods[rule.Name+" blocks "+pod.Name] = pod
				}
			}
		}
		return pods
	}
	var keys []any
	for _, m := range c.those(true) {
		keys = append(keys, m.name+" blocks "+m.name)
	}
	Eventually(ctx, blocked).WithTimeout(ruleLoadPatience).WithPolling(time.Second).Should(And(HaveEach(how), WithTransform(keysOf, ConsistOf(keys...))))
}

func keysOf(pods map[string]appsv1alpha1.BlockedPod) []string { return slices.Collect(maps.Keys(pods)) }

var _ = Describe("Five hundred rules that call five services, of which two never answer", func() {
	var c *ruleLoad
	var m *manager
	BeforeEach(func(ctx context.Context) {
		leaders := managers.leaders()
		m = leaders[len(leaders)-1]
		c = newRuleLoad(ctx)
	})

	// alternate alternates rounds without and with the silent services. In each pair of rounds
	// one of the given number of parts of the other pods begins.
	alternate := func(ctx context.Context, pairs, parts int) rounds {
		GinkgoHelper()
		var all rounds
		for pair := range pairs {
			part := c.those(false)
			part = slices.DeleteFunc(part, func(m member) bool { return m.number/ruleLoadServices%parts != pair%parts })
			By("waiting for the end of hanging calls of an earlier round")
			c.awaitCalm(ctx)
			c.awaitQuiet(ctx, m)
			By("a round without calls of the silent services")
			without := c.round(ctx, m, part)
			c.awaitCalm(ctx)
			By("a round in which 200 pods wait for them")
			c.beginSilent(ctx)
			all = append(all, pairOfRounds{without: without, with: c.round(ctx, m, part)})
			if pair == pairs-1 {
				By("reporting why they wait, and when they are evaluated again")
				c.awaitBlocked(ctx, And(HaveField("Reason", "WebhookFailed"), HaveField("Message", Not(BeEmpty())), HaveField("NextCheck", Not(BeNil()))))
			}
			c.callOffSilent(ctx)
		}
		AddReportEntry("figures", all.String())
		Expect(c.watch.unapprovedPermits()).To(BeEmpty(), "no pod may be permitted without an approval")
		for _, service := range c.services {
			Expect(service.Posts("")).To(And(Not(BeEmpty()), HaveEach(1)), "POSTs by traceId")
		}
		first, last := all[0].with.gauged, all[len(all)-1].with.gauged
		Expect(last.goroutines).To(BeNumerically("<=", first.goroutines+moreGoroutines))
		Expect(last.heapBytes).To(BeNumerically("<=", first.heapBytes+moreHeapBytes))
		return all
	}

	It("permit the pods of the other three in every round, without growth of resources", Label(longStories), func(ctx context.Context) {
		alternate(ctx, 3, 6)
	})

	It("permit the pods of the other three within twice the time that it takes without the two", Label(benchStories), func(ctx context.Context) {
		Expect(alternate(ctx, 3, 2).ratio()).To(BeNumerically("<=", 2))
	})
})
