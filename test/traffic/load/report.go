package load

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

const (
	// maxFailures is the number of failures that are kept with all their fields. All are counted.
	maxFailures = 20

	// maxPods bounds the number of pods that are counted individually; further pods count as
	// others.
	maxPods = 1000
	others  = "(others)"
)

// Totals are the counts of requests.
type Totals struct {
	Requests int
	Failed   int
	Latency  Histogram // of all of them, failures included
}

// Report holds the outcomes of all requests of a run.
type Report struct {
	Totals
	Took     time.Duration
	Kinds    map[Kind]*Totals
	Causes   map[string]int // of failures: "status 503", "answer cut off", ...
	Pods     map[string]int // whole answers, by pod
	Failures []Outcome      // the first 20 failures
}

// OK reports whether there were requests and no request failed.
func (r *Report) OK() bool { return r.Requests > 0 && r.Failed == 0 }

// Add adds the counts of another report.
func (r *Report) Add(other *Report) {
	r.add(&other.Totals)
	r.Took += other.Took
	for kind, totals := range other.Kinds {
		r.kind(kind).add(totals)
	}
	for cause, count := range other.Causes {
		put(&r.Causes, cause, r.Causes[cause]+count)
	}
	for pod, count := range other.Pods {
		r.countPod(pod, count)
	}
	r.Failures = append(r.Failures, other.Failures...)
	r.Failures = r.Failures[:min(len(r.Failures), maxFailures)]
}

// kind returns the totals of a kind, for adding.
func (r *Report) kind(kind Kind) *Totals {
	if r.Kinds[kind] == nil {
		put(&r.Kinds, kind, &Totals{})
	}
	return r.Kinds[kind]
}

func (t *Totals) add(other *Totals) {
	t.Requests += other.Requests
	t.Failed += other.Failed
	t.Latency.Merge(&other.Latency)
}

func (r *Report) countPod(pod string, count int) {
	named := len(r.Pods)
	if r.Pods[others] > 0 {
		named--
	}
	if r.Pods[pod] == 0 && named >= maxPods {
		pod = others
	}
	put(&r.Pods, pod, r.Pods[pod]+count)
}

func put[K comparable, V any](in *map[K]V, key K, value V) {
	if *in == nil {
		*in = map[K]V{}
	}
	(*in)[key] = value
}

// Print writes a line for each kind of request, a line for all requests, and the causes
// of failures.
func (r *Report) Print(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "\trequests\tfailed\tp50\tp99\tmax\tduration\t")
	row := func(name string, t *Totals) {
		fmt.Fprintf(table, "%s\t%d\t%d\t%s\t%s\t%s\t%s\t\n", name, t.Requests, t.Failed,
			Round(t.Latency.Percentile(50)), Round(t.Latency.Percentile(99)), Round(t.Latency.Max()), r.Took.Round(100*time.Millisecond))
	}
	for _, kind := range slices.Sorted(maps.Keys(r.Kinds)) {
		row(string(kind), r.Kinds[kind])
	}
	row("all", &r.Totals)
	if err := table.Flush(); err != nil {
		return fmt.Errorf("printing the report: %w", err)
	}
	if r.Failed > 0 {
		if _, err := fmt.Fprintf(out, "failed: %s\n", r.FailedBy()); err != nil {
			return fmt.Errorf("printing the report: %w", err)
		}
	}
	return nil
}

// FailedBy returns the causes of failures, the most frequent first: "12 status 503, 3
// answer cut off".
func (r *Report) FailedBy() string {
	causes := slices.SortedFunc(maps.Keys(r.Causes), func(a, b string) int {
		return cmp.Or(cmp.Compare(r.Causes[b], r.Causes[a]), cmp.Compare(a, b))
	})
	var parts []string
	for _, cause := range causes {
		parts = append(parts, fmt.Sprintf("%d %s", r.Causes[cause], cause))
	}
	return strings.Join(parts, ", ")
}

// Round rounds a duration to a human-readable number of digits.
func Round(d time.Duration) time.Duration {
	switch {
	case d < 10*time.Millisecond:
		return d.Round(10 * time.Microsecond)
	case d < time.Second:
		return d.Round(time.Millisecond)
	default:
		return d.Round(10 * time.Millisecond)
	}
}

// tally counts outcomes.
type tally struct {
	mu     sync.Mutex
	report Report
}

func (t *tally) count(o Outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, of := range []*Totals{&t.report.Totals, t.report.kind(o.Kind)} {
		of.Requests++
		of.Latency.Add(o.Latency)
		if o.Err != nil {
			of.Failed++
		}
	}
	if o.Err == nil {
		t.report.countPod(o.Pod, 1)
		return
	}
	put(&t.report.Causes, o.cause(), t.report.Causes[o.cause()]+1)
	if len(t.report.Failures) < maxFailures {
		t.report.Failures = append(t.report.Failures, o)
	}
}

// snapshot returns a copy that does not change.
func (t *tally) snapshot() *Report {
	t.mu.Lock()
	defer t.mu.Unlock()
	copied := &Report{}
	copied.Add(&t.report)
	return copied
}
