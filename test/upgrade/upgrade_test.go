package upgrade_test

import (
	"context"
	"fmt"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// kills is the number of leaders that are killed.
	kills = 5

	// permits is the least number of permits while two versions run, and under each leader.
	permits = 5
)

var _ = Describe("Under load", Ordered, func() {
	var s *system
	var work *load
	var dryRuns probes
	var upgrading, returning *inFlight

	// progress waits until each part of the load has completed a round, and the phase has enough probes.
	progress := func(ctx context.Context) {
		GinkgoHelper()
		before := work.completed()
		Eventually(ctx, func() (int, error) {
			if failures := work.failed(); len(failures) > 0 {
				return 0, StopTrying(failures[0])
			}
			return work.fewestRounds(before), nil
		}).Should(BeNumerically(">=", 1))
		phase := s.phases.names()[len(s.phases.names())-1]
		Eventually(ctx, func() int { return dryRuns.fewest(s, phase) }).Should(BeNumerically(">=", samples))
	}
	// permitMore waits for further permits.
	permitMore := func(ctx context.Context) {
		GinkgoHelper()
		before := s.pods.permitted()
		Eventually(ctx, s.pods.permitted).Should(BeNumerically(">=", before+permits))
	}
	// roll replaces both replicas, in turn, by replicas of a release.
	roll := func(ctx context.Context, first func(release) *replica, from, to release) {
		GinkgoHelper()
		s.replicas.replace(ctx, first(from), to)
		permitMore(ctx) // two versions run
		s.replicas.replace(ctx, first(from), to)
		progress(ctx)
	}

	BeforeAll(func(ctx context.Context) {
		s = upgraded
		s.install(ctx, s.previous)
		s.replicas.start(ctx, s.previous)
		Eventually(ctx, func(ctx context.Context) error {
			return s.admin.Create(ctx, newRule("default", "probe", "probe", approved()), client.DryRunAll)
		}).Should(Succeed(), "the endpoints of the Service must have the replicas")

		idle := newSpace(ctx, s, "idle")
		idle.rule(ctx, "web", approved())
		idle.deployment(ctx, "web", 3)
		idle.awaitServing(ctx, 3)
		work = openLoad(ctx, s)
		DeferCleanup(func() { work.close() })
		upgrading = begin(ctx, s, "upgrading")
		dryRuns = openProbes(s, idle.list()[0])
	})

	It("the previous release serves", func(ctx context.Context) {
		s.phases.begin("previous release")
		progress(ctx)
		upgrading.expectKept(ctx)
	})

	It("its replicas continue when the manifests of this release are applied", func(ctx context.Context) {
		s.phases.begin("apply manifests")
		Expect(s.apply(ctx, s.current, "--dry-run=server")).To(MatchError(ContainSubstring("conflict")), "the leader owns addresses of webhooks")
		s.install(ctx, s.current)
		progress(ctx)
		upgrading.expectKept(ctx)
	})

	It("its replicas are replaced in turn, the leader last", func(ctx context.Context) {
		s.phases.begin("roll replicas")
		roll(ctx, s.replicas.follower, s.previous, s.current)
		upgrading.expectKept(ctx)
	})

	It("leaders are killed, and nothing is lost", func(ctx context.Context) {
		s.phases.begin("kill leaders")
		for range kills {
			s.replicas.killLeader(ctx)
			permitMore(ctx)
		}
		progress(ctx)
		upgrading.expectKept(ctx)
	})

	It("what began before the upgrade completes after it, once", func(ctx context.Context) {
		s.phases.begin("this release")
		upgrading.release(ctx)
		progress(ctx)
	})

	It("the manifests of the previous release are applied again", func(ctx context.Context) {
		returning = begin(ctx, s, "returning")
		s.phases.begin("apply previous")
		s.install(ctx, s.previous)
		progress(ctx)
		returning.expectKept(ctx)
	})

	It("the replicas are replaced by replicas of the previous release, the leader first", func(ctx context.Context) {
		s.phases.begin("roll back replicas")
		roll(ctx, s.replicas.leading, s.current, s.previous)
		returning.expectKept(ctx)
	})

	It("what began before the return completes after it, once", func(ctx context.Context) {
		s.phases.begin("previous release again")
		returning.release(ctx)
		progress(ctx)
	})

	It("every request was reviewed, every budget kept, and no pod was off traffic without an operation", func() {
		work.close()
		made := readRequests(s)
		failedProbes, failedNearKills := dryRuns.failures(s)
		fmt.Fprintf(os.Stderr, "\n%s\n%d writes of all users; near %d kills of a leader %d were rejected and %d passed without a review (dry runs among them: %d)\n"+
			"permits: %d; rounds of the load: %v; fewest available pods: %v; replicas that ended by themselves: %d; denied by policies of the other version: %d; webhooks that the previous release does not have: %d\n\n",
			dryRuns.table(s), made.total, kills, made.rejected, made.passed, failedNearKills,
			s.pods.permitted(), work.completed(), work.fewestAvailable(), len(s.replicas.crashed), made.denied, made.newer)

		Expect(work.failed()).To(BeEmpty(), "operations of the load must succeed")
		Expect(made.unexplained).To(BeEmpty(), "every request must be reviewed, unless its replica is killed")
		Expect(failedProbes).To(BeEmpty(), "every dry run must be reviewed, unless its replica is killed")
		Expect(made.forbidden).To(BeEmpty(), "both versions must have the rights they use")
		Expect(s.pods.unexplained()).To(BeEmpty(), "a pod that serves may be off traffic during an operation only")
		for _, b := range work.budgets {
			Expect(s.pods.leastAvailable(b.namespace)).To(BeNumerically(">=", b.floor-made.passedDeletes[b.namespace]), "available pods in %s", b.namespace)
		}
		expectApprovals(s, "approvals", upgrading.namespace, returning.namespace)
		Expect(s.replicas.panics()).To(BeEmpty())
	})
})

// expectApprovals expects one POST for each traceId, at least one approval for each permit, and no more approvals than
// waits.
func expectApprovals(s *system, namespaces ...string) {
	GinkgoHelper()
	waits, permitted := s.pods.passages()
	for _, namespace := range namespaces {
		Expect(s.approvals.Posts(namespace)).To(And(Not(BeEmpty()), HaveEach(1)), "POSTs by traceId in %s", namespace)
		given := map[types.UID]int{}
		for _, approval := range s.approvals.Approvals(namespace) {
			given[types.UID(approval.Pod.UID)]++
		}
		for _, pod := range s.pods.in(namespace) {
			if pod.Labels["app"] != called && pod.Labels["app"] != "web" {
				continue // no call
			}
			Expect(given[pod.UID]).To(And(BeNumerically(">=", permitted[pod.UID]), BeNumerically("<=", waits[pod.UID])),
				"approvals of %s/%s, which was permitted %d times", namespace, pod.Name, permitted[pod.UID])
		}
	}
}
