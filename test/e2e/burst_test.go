package e2e_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// benchEvents is the label of the comparison of bursts with and without events: `make
// bench-events` runs it.
const benchEvents = "bench-events"

var _ = Describe("A burst of 200 pods that are updated in place", Label(benchEvents), func() {
	const (
		pods    = 200
		samples = 4

		// slowdown is how much longer a burst may take with events, and how much more
		// processor time it may use.
		slowdown = 1.15
	)

	// burst measures the lifecycles that one manager with the flags completes.
	burst := func(ctx context.Context, flags ...string) figures {
		GinkgoHelper()
		managers.stopAll()
		m := managers.launch(flags...)
		Eventually(ctx, m.Ready).Should(Succeed(), func() string { return m.Tail() })
		p := newScenario(ctx)
		p.rule(ctx, maxUnavailable("20%"))
		p.pods(ctx, pods, nil)
		start, server := time.Now(), serverSeconds(ctx)
		stop := act(p, imageUpdater{id: "updater", image: newImage}.wants)
		p.awaitImage(ctx, pods, newImage)
		took := time.Since(start)
		server = serverSeconds(ctx) - server
		stop()
		Expect(p.admin.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(p.namespace), forced)).To(Succeed())
		Eventually(ctx, p.list).Should(BeEmpty())
		managers.stopAll()
		used := m.CPU()
		return figures{rate: pods / took.Seconds(), milliseconds: 1000 * (server + used.Seconds()) / pods}
	}

	It("completes within 15 % of the lifecycles a second that it completes without events", func(ctx context.Context) {
		DeferCleanup(func(ctx context.Context) {
			managers.stopAll()
			managers.start(ctx)
		})
		var with, without bursts
		for i := range samples {
			// The order alternates, since the load of the machine may change.
			if i%2 == 0 {
				with = append(with, burst(ctx))
			}
			without = append(without, burst(ctx, "--event-rate", "0"))
			if i%2 == 1 {
				with = append(with, burst(ctx))
			}
		}
		fmt.Printf("with events %s\nwithout     %s\n", with, without)
		Expect(without.rate()).To(BeNumerically("<=", slowdown*with.rate()))
		Expect(with.milliseconds()).To(BeNumerically("<=", slowdown*without.milliseconds()))
	})
})

// figures are the results of one burst: lifecycles a second, and the processor time of the
// manager and of the API server for each, which hardly depends on the load of the machine.
type figures struct{ rate, milliseconds float64 }

// bursts holds the figures of several bursts.
type bursts []figures

func (b bursts) rate() float64 {
	return medianOf(b, func(f figures) float64 { return f.rate })
}

func (b bursts) milliseconds() float64 {
	return medianOf(b, func(f figures) float64 { return f.milliseconds })
}

func (b bursts) String() string {
	return fmt.Sprintf("%.1f lifecycles a second, %.0f ms of processor time for each (medians of %.1f)", b.rate(), b.milliseconds(), []figures(b))
}

func medianOf(b bursts, value func(figures) float64) float64 {
	var values []float64
	for _, f := range b {
		values = append(values, value(f))
	}
	return median(values)
}

// serverSeconds returns the processor time that the API server has used.
func serverSeconds(ctx context.Context) float64 {
	GinkgoHelper()
	text, err := suiteCluster.clientset.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	Expect(err).NotTo(HaveOccurred())
	found := regexp.MustCompile(`(?m)^process_cpu_seconds_total (\S+)$`).FindSubmatch(text)
	Expect(found).To(HaveLen(2))
	seconds, err := strconv.ParseFloat(string(found[1]), 64)
	Expect(err).NotTo(HaveOccurred())
	return seconds
}
