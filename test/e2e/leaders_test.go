package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/test/audit"
	"github.com/podops-dev/podops/test/expect"
)

var _ = Describe("While leaders fail", Ordered, func() {
	const replicas = 12
	var whole ledger

	BeforeAll(func() { managers.stopAll() })
	AfterEach(func() { managers.stopAll() })
	AfterAll(func(ctx context.Context) { managers.start(ctx) })

	// prepare creates a Deployment under two overlapping rules: both apply to every permit.
	prepare := func(ctx context.Context) (scenario, *observer, *batches) {
		p := newScenario(ctx)
		p.rule(ctx, maxUnavailable("25%"))
		p.ruleNamed(ctx, "floor", minAvailable("70%"))
		p.deployment(ctx, replicas, nil)
		whole = openLedger(p)
		return p, observe(p), countBatches(p)
	}
	// A manager that is killed while it answers the review of a delete sends no answer, and
	// the webhook for deletes fails open, by design: such a delete is no permit.
	expectBounds := func(ctx context.Context, p scenario, o *observer, b *batches, a *leaderFailures) {
		GinkgoHelper()
		unapprovedPermits := len(whole.byAllUsers(audit.On("pods"), audit.InNamespace(p.namespace),
			func(e audit.Event) bool { return e.Verb == "delete" && e.FailedOpen && !e.Refused() }))
		AddReportEntry("figures", fmt.Sprintf("%d leaders failed, at %v; max unavailable %d of %d; batches %v; deletes that failed open: %d",
			len(a.sprung()), a.sprung(), replicas-o.leastAvailable(), replicas, b.all(), unapprovedPermits))
		Expect(replicas - o.leastAvailable()).To(BeNumerically("<=", 3+unapprovedPermits))
		p.expectNoLiveReservation(ctx)
	}

	It("five kills never exceed the bound in a rollout of a Deployment", func(ctx context.Context) {
		team := newTeam(ctx, shortLease...)
		p, observer, batches := prepare(ctx)
		leaderFailures := failLeaders(p, 5, team.killLeader)
		for range maxRounds {
			if len(leaderFailures.sprung()) == 5 {
				break
			}
			before := p.list(ctx)
			p.kubectl(ctx, "--namespace", p.namespace, "rollout", "restart", "deployment/web")
			Eventually(ctx, p.list).WithTimeout(3 * patience).Should(And(
				HaveLen(replicas), HaveEach(And(expect.BeAvailable(), expect.HaveNoLifecycle())),
				WithTransform(uids, Not(ContainElements(BeElementOf(uids(before)))))))
		}
		expectBounds(ctx, p, observer, batches, leaderFailures)
	})

	It("five kills never exceed the bound when pods are updated in place", func(ctx context.Context) {
		team := newTeam(ctx, shortLease...)
		p, observer, batches := prepare(ctx)
		leaderFailures := failLeaders(p, 5, team.killLeader)
		updateUntil(ctx, p, replicas, func() bool { return len(leaderFailures.sprung()) == 5 })
		expectBounds(ctx, p, observer, batches, leaderFailures)
	})

	It("a request that is repeated outlives its leader, and one that is not lapses", func(ctx context.Context) {
		team := newTeam(ctx, append([]string{"--delete-wait=2s"}, shortLease...)...) // both lapse after the same time
		p := newScenario(ctx)
		p.rule(ctx, maxUnavailable("2"))
		p.deployment(ctx, 4, nil)
		repeated, once := p.list(ctx)[0], p.list(ctx)[1]
		for _, pod := range []*corev1.Pod{repeated, once} {
			p.patch(ctx, pod, `{"metadata":{"finalizers":[%q]}}`, appsv1alpha1.ProtectionFinalizerPrefix+"/e2e") // its traffic stays on
		}
		evictions, stop := context.WithCancel(ctx)
		var client sync.WaitGroup
		defer func() { stop(); client.Wait() }()
		var waits sync.Mutex // a request passes that waits in a manager when that is killed
		client.Go(func() {
			for every := time.NewTicker(time.Second); evictions.Err() == nil; <-every.C {
				waits.Lock()
				_ = p.evict(evictions, repeated) // it waits in admission, and is answered 429
				waits.Unlock()
			}
		})
		other := p.with(p.as("e2e-other", []string{"system:masters"})) // each user has one pending request for an owner
		Expect(other.evict(ctx, once)).To(Satisfy(apierrors.IsTooManyRequests))
		preparing := HaveField("Labels", HaveKey(appsv1alpha1.PreparingLabelPrefix+"/"+podDelete))
		for _, pod := range []*corev1.Pod{repeated, once} {
			Eventually(ctx, p.seeing(pod.Name)).Should(preparing)
		}
		waits.Lock()
		team.killLeader(ctx)
		waits.Unlock()

		By("putting the pod back into service whose eviction is not repeated")
		Eventually(ctx, p.notes("DeleteUndone")).WithTimeout(4 * patience).Should(ConsistOf("the request was not repeated"))
		Eventually(ctx, p.seeing(once.Name)).Should(And(expect.BeAvailable(), expect.HaveNoLifecycle()))
		Consistently(ctx, p.seeing(repeated.Name)).WithTimeout(5*time.Second).Should(preparing, "its request would have lapsed at the same time")

		By("evicting the other one once its traffic is off")
		p.patch(ctx, repeated, `{"metadata":{"finalizers":null}}`)
		Eventually(ctx, func(ctx context.Context) []types.UID { return uids(p.list(ctx)) }).WithTimeout(2 * patience).ShouldNot(ContainElement(repeated.UID))
		Expect(uids(p.list(ctx))).To(ContainElement(once.UID))
	})

	It("kills never exceed the lower one of a PodDisruptionBudget and a rule", func(ctx context.Context) {
		team := newTeam(ctx, shortLease...)
		p := newScenario(ctx)
		p.rule(ctx, maxUnavailable("2"))
		p.deployment(ctx, 5, nil)
		p.disruptionBudget(ctx, "web", "1")
		observer, evictions := observe(p), openLedger(p)
		leaderFailures := failLeaders(p, 3, team.killLeader)
		for range maxRounds {
			if len(leaderFailures.sprung()) == 3 {
				break
			}
			drained := uids(p.list(ctx))
			Eventually(ctx, func(ctx context.Context) (left int) {
				for _, pod := range p.list(ctx) {
					if slices.Contains(drained, pod.UID) {
						_ = p.evict(ctx, pod) // held, or carried out: the pods that are left count
						left++
					}
				}
				return left
			}).WithTimeout(4 * patience).WithPolling(time.Second).Should(BeZero())
			p.awaitAvailable(ctx, 5)
		}
		AddReportEntry("figures", fmt.Sprintf("leaders failed at %v; least available %d of 5", leaderFailures.sprung(), observer.leastAvailable()))
		Expect(leaderFailures.sprung()).To(HaveLen(3))
		// The API server counts a pod once it is Ready, and reviews no eviction when its replica is killed.
		unreviewed := len(evictions.byAllUsers(audit.On("pods/eviction"), audit.InNamespace(p.namespace),
			func(e audit.Event) bool { return e.FailedOpen && !e.Refused() }))
		Expect(observer.leastAvailable()).To(BeNumerically(">=", 4-unreviewed))
	})

	It("two managers that lead at once never use the last slot of a PodDisruptionBudget twice", func(ctx context.Context) {
		p := newScenario(ctx)
		way := openSlowPath(p)
		suspended := managers.launch("--leader-elect=false", "--kubeconfig", way.kubeconfig)
		Eventually(ctx, suspended.Ready).Should(Succeed())
		p.rule(ctx, approved())
		p.deployment(ctx, 4, nil)
		p.disruptionBudget(ctx, "web", "1")
		observer, requests := observe(p), openLedger(p)
		pods := p.list(ctx)
		older, younger := pods[0], pods[1]

		By("suspending a manager between its decision about a pod and the permit")
		p.begin(ctx, older, "upgrade", "upgrade") // withheld by the rule
		way.delay()
		p.label(ctx, younger, approvedLabel, "true")
		p.begin(ctx, younger, "upgrade", "upgrade")
		Eventually(ctx, way.delayed).Should(Receive(Equal(younger.Name)))

		By("starting another manager, for which an older request comes first")
		p.label(ctx, older, approvedLabel, "true")
		other := managers.launch("--leader-elect=false")
		Eventually(ctx, other.Ready).Should(Succeed())
		Eventually(ctx, p.list).Should(WithTransform(operable("upgrade"), Equal(1)))

		By("continuing the first")
		way.release()
		var answer answered
		Eventually(ctx, way.answers).Should(Receive(&answer, HaveField("Pod", younger.Name)))
		Consistently(ctx, p.list).Should(WithTransform(operable("upgrade"), Equal(1)))
		Expect(observer.leastAvailable()).To(BeNumerically(">=", 3))
		AddReportEntry("figures", fmt.Sprintf("the late permit was answered with %d; least available %d of 4; writes of the record %v",
			answer.Code, observer.leastAvailable(), requests.byAllUsers(audit.On("poddisruptionbudgets"), audit.Verb("patch"), audit.InNamespace(p.namespace)).CountBy(byTargetAndCode)))
	})

	It("two leaders at once never exceed the bound when pods are updated in place", func(ctx context.Context) {
		// A leader that has lost its lease continues for as long as it may try to renew it.
		team := newTeam(ctx)
		p, observer, batches := prepare(ctx)
		leaderFailures := failLeaders(p, 3, team.overthrowLeader)
		updateUntil(ctx, p, replicas, func() bool { return len(leaderFailures.sprung()) == 3 })
		expectBounds(ctx, p, observer, batches, leaderFailures)
	})
})

// maxRounds bounds how often a scenario is repeated.
const maxRounds = 10

// updateUntil updates the image of all pods in place, repeatedly, until enough returns
// true.
func updateUntil(ctx context.Context, p scenario, count int, enough func() bool) {
	GinkgoHelper()
	for round := range maxRounds {
		image := fmt.Sprintf("registry.example.com/web:v%d", round+2)
		stop := act(p, imageUpdater{id: fmt.Sprintf("updater-%d", round), image: image}.wants)
		p.awaitImage(ctx, count, image)
		stop()
		if enough() {
			return
		}
	}
	Fail("too few leaders have failed")
}

// awaitImage waits until all pods run the image and are available.
func (p scenario) awaitImage(ctx context.Context, count int, image string) {
	GinkgoHelper()
	Eventually(ctx, p.list).WithTimeout(2 * patience).Should(And(HaveLen(count), HaveEach(And(
		expect.BeAvailable(), expect.HaveNoLifecycle(), WithTransform(imageOf, Equal(image))))))
}

// expectNoLiveReservation expects that no record holds a slot for a pod that may still be
// permitted.
func (p scenario) expectNoLiveReservation(ctx context.Context) {
	GinkgoHelper()
	Eventually(ctx, func(ctx context.Context) []string {
		at := map[string]*corev1.Pod{}
		for _, pod := range p.list(ctx) {
			at[string(pod.UID)] = pod
		}
		var live []string
		for _, rule := range p.listRules(ctx) {
			if rule.Status.Permits == nil {
				continue
			}
			for _, reserved := range rule.Status.Permits.Reserved {
				if pod := at[string(reserved.UID)]; pod != nil && pod.ResourceVersion == reserved.ResourceVersion {
					live = append(live, rule.Name+" reserves "+pod.Name)
				}
			}
		}
		return live
	}).Should(BeEmpty())
}
