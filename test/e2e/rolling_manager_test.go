package e2e_test

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podops-dev/podops/test/audit"
	"github.com/podops-dev/podops/test/expect"
)

var _ = Describe("A rolling update of the manager", func() {
	BeforeEach(func() { managers.stopAll() })
	AfterEach(func(ctx context.Context) {
		managers.stopAll()
		managers.start(ctx)
	})

	It("leaves no request unanswered, and loses no deferred delete", func(ctx context.Context) {
		// Endpoints reflect readiness within half a second. The delay is six times as long.
		old := newTeam(ctx, "--shutdown-delay", "3s")
		managers.lag(500 * time.Millisecond)
		var owners []scenario
		for range 3 {
			p := newScenario(ctx)
			p.rule(ctx, minAvailable("4")) // pods that the number of pods withholds do not take turns
			p.scale(ctx, p.deployment(ctx, 4, nil), 1)
			owners = append(owners, p)
		}
		waiting := func(ctx context.Context) (held []types.UID) {
			for _, p := range owners {
				for _, pod := range p.list(ctx) {
					if waits, _ := expect.BeWaiting(podDelete).Match(pod); waits {
						held = append(held, pod.UID)
					}
				}
			}
			return held
		}
		Eventually(ctx, waiting).Should(HaveLen(9), "each owner must have three surplus pods")
		held := waiting(ctx)
		whole := openLedger(owners[0])
		load := openLoad(owners)

		load.await()
		for range 2 {
			fresh := managers.launch(old.flags...)
			Eventually(ctx, fresh.Ready).Should(Succeed())
			leaving := managers.running()[0]
			Expect(leaving).NotTo(BeIdenticalTo(fresh))
			leaving.stop()
			Eventually(leaving.Ended()).Should(BeClosed())
			load.await()
		}
		load.close()

		Expect(load.failed).To(BeEmpty(), "every request must be answered by a manager")
		Expect(waiting(ctx)).To(ConsistOf(held), "every deferred delete must still be deferred")
		for _, p := range owners {
			Expect(p.list(ctx)).To(HaveLen(4))
		}
		deletes := whole.byAllUsers(audit.On("pods"), func(e audit.Event) bool { return e.Verb == "delete" })
		Expect(deletes.Where(func(e audit.Event) bool { return e.FailedOpen })).To(BeEmpty(), "no delete may fail open")
		Expect(deletes).NotTo(BeEmpty())
		AddReportEntry("figures", fmt.Sprintf("%d label writes and %d deletes while both managers were replaced", load.requests.Load(), len(deletes)))
	})
})

// load writes labels that the webhooks review, and deletes pods whose deletes are deferred.
type load struct {
	controller client.Client

	requests atomic.Int64
	stop     context.CancelFunc
	ended    chan struct{}

	// failed are the requests without the expected answer. They are complete after close.
	failed []string
}

// openLoad sends requests to one pod of each owner until it is closed.
func openLoad(owners []scenario) *load {
	GinkgoHelper()
	ctx, stop := context.WithCancel(context.Background())
	l := &load{controller: suiteCluster.asReplicaSetController(), stop: stop, ended: make(chan struct{})}
	DeferCleanup(l.close)
	go func() {
		defer GinkgoRecover()
		defer close(l.ended)
		pace := time.NewTicker(polling / 10)
		defer pace.Stop()
		for round := 0; ctx.Err() == nil; round++ {
			for _, p := range owners {
				l.round(context.Background(), p, round)
			}
			<-pace.C
		}
	}()
	return l
}

// round writes a label, and deletes a pod as the ReplicaSet controller does.
func (l *load) round(ctx context.Context, p scenario, round int) {
	pod := p.list(ctx)[0]
	l.requests.Add(1)
	if err := p.trySetLabels(ctx, pod, map[string]any{"e2e.podops.dev/round": strconv.Itoa(round)}); err != nil {
		l.failed = append(l.failed, err.Error())
	}
	err := l.controller.Delete(ctx, pod)
	if matches, _ := expect.BeRefused(429).Match(err); !matches {
		l.failed = append(l.failed, fmt.Sprintf("the delete of %s: %v", pod.Name, err))
	}
}

// await waits for ten more answers.
func (l *load) await() {
	GinkgoHelper()
	Eventually(l.requests.Load).Should(BeNumerically(">", l.requests.Load()+10))
}

func (l *load) close() {
	l.stop()
	<-l.ended
}
