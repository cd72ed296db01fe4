package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podops-dev/podops/test/expect"
)

const (
	// moreGoroutines and moreHeapBytes bound how much more the last round may need than the
	// first one: the noise of a program that has reached its size.
	moreGoroutines = 50
	moreHeapBytes  = 16 << 20
)

// stopwatch times permits, from before the write that begins an operation to the event that
// shows the permit, as a client observes them. It has its own watch.
type stopwatch struct {
	mu     sync.Mutex
	silent map[types.UID]bool
	begun  map[types.UID]time.Time
	took   map[types.UID]time.Duration
	wrong  []string // permits of pods whose services never answer
	idle   map[types.UID]bool
}

func newStopwatch(members []member) *stopwatch {
	s := &stopwatch{silent: map[types.UID]bool{}, idle: map[types.UID]bool{}}
	for _, m := range members {
		s.silent[m.pod.UID] = m.silent
	}
	s.restart()
	return s
}

// restart drops the times of earlier rounds.
func (s *stopwatch) restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun, s.took = map[types.UID]time.Time{}, map[types.UID]time.Duration{}
}

func (s *stopwatch) begin(pod types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun[pod] = time.Now()
}

// see records a version of a pod. It reports whether it is the first permitted one.
func (s *stopwatch) see(pod *corev1.Pod) (permitted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle[pod.UID] = expect.IsAvailable(pod) && len(expect.LifecycleLabels(pod)) == 0
	_, passed := pod.Labels[preChecked+ruleLoadID]
	if passed && s.silent[pod.UID] {
		s.wrong = append(s.wrong, pod.Name)
	}
	_, before := s.took[pod.UID]
	if begun, has := s.begun[pod.UID]; has && passed && !before {
		s.took[pod.UID] = time.Since(begun)
		return true
	}
	return false
}

// calm returns how many pods are available without an operation.
func (s *stopwatch) calm() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	count := 0
	for _, idle := range s.idle {
		if idle {
			count++
		}
	}
	return count
}

// latencies returns the latencies of the permits of this round, shortest first.
func (s *stopwatch) latencies() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Values(s.took))
}

// unapprovedPermits returns the pods that were permitted although their services never answer.
func (s *stopwatch) unapprovedPermits() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.wrong)
}

// round holds the observations of one round.
type round struct {
	latencies []time.Duration // shortest first
	gauged    gauged
}

// pairOfRounds is two rounds with the same pods: one without the silent services, one with
// them.
type pairOfRounds struct{ without, with round }

// percentile returns the latency that the given percentage of permits does not exceed.
func (r round) percentile(percent int) time.Duration {
	return r.latencies[(len(r.latencies)*percent+99)/100-1]
}

// rounds are the rounds of a scenario, in pairs.
type rounds []pairOfRounds

// ratio returns the ratio of the 99th percentiles with and without the silent services: the
// median of the pairs.
func (r rounds) ratio() float64 {
	var ratios []float64
	for _, pair := range r {
		ratios = append(ratios, float64(pair.with.percentile(99))/float64(pair.without.percentile(99)))
	}
	return median(ratios)
}

// String returns a human-readable table.
func (r rounds) String() string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(&text, "permits of rules whose services answer, from the begin write to the event; %d pods begin per second\n", ruleLoadPace)
	fmt.Fprintln(table, "round\tsilent services\tpermits\tp50\tp99\tworst\tgoroutines\theap MiB\tresident MiB\t")
	line := func(number int, silent string, one round) {
		fmt.Fprintf(table, "%d\t%s\t%d\t%s\t%s\t%s\t%.0f\t%.1f\t%.1f\t\n", number, silent, len(one.latencies),
			millis(one.percentile(50)), millis(one.percentile(99)), millis(one.percentile(100)),
			one.gauged.goroutines, one.gauged.heapBytes/(1<<20), one.gauged.residentBytes/(1<<20))
	}
	for i, pair := range r {
		line(i+1, "none", pair.without)
		line(i+1, strconv.Itoa(ruleLoadSilent), pair.with)
	}
	_ = table.Flush() // to memory
	fmt.Fprintf(&text, "p99 with silent services / without: %.2f (median of %d pairs)", r.ratio(), len(r))
	return text.String()
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) + "ms" }

// gauged is the resource usage of a manager in a round: medians of many samples, since
// garbage collections and pending events come and go.
type gauged struct {
	goroutines    float64
	heapBytes     float64 // alive after the last collection
	residentBytes float64
}

// gauge samples the metrics of a manager until found is called.
func gauge(ctx context.Context, m *manager) (found func() gauged) {
	var goroutines, heap, resident []float64
	look := func() {
		text := m.metrics(ctx)
		goroutines = append(goroutines, reading(text, "go_goroutines"))
		// The next collection runs when the heap is twice what the last one left.
		heap = append(heap, reading(text, "go_memstats_next_gc_bytes")/2)
		resident = append(resident, reading(text, "process_resident_memory_bytes"))
	}
	enough, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer GinkgoRecover()
		defer close(ended)
		ticker := time.NewTicker(500 * time.Millisecond)
		defer ticker.Stop()
		for {
			look()
			select {
			case <-ticker.C:
			case <-enough:
				return
			}
		}
	}()
	return func() gauged {
		close(enough)
		<-ended
		return gauged{goroutines: median(goroutines), heapBytes: median(heap), residentBytes: median(resident)}
	}
}

// median returns the median of values; of the two in the middle the larger one.
func median(values []float64) float64 {
	return slices.Sorted(slices.Values(values))[len(values)/2]
}

// reading returns the value of a metric without labels.
func reading(metrics, name string) float64 {
	GinkgoHelper()
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindStringSubmatch(metrics)
	Expect(found).To(HaveLen(2), "the metric %s", name)
	value, err := strconv.ParseFloat(found[1], 64)
	Expect(err).NotTo(HaveOccurred())
	return value
}
