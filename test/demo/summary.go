package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/podops-dev/podops/test/traffic/load"
)

// maxWritesPerPod is what a replaced pod may cost, its successor included: begin,
// permit, delete; gate and availability of the new one.
const maxWritesPerPod = 5

// writes are requests of the operator during the rollout, refused ones included.
type writes struct {
	pods, adapter, rules, events int
}

// summary is what the demo says at the end.
type summary struct {
	replaced int
	desired  int
	worst    int
	limit    int
	took     time.Duration
	writes   writes
	spans    []span
	requests *load.Report
}

// span is how long pods spent on one part of the way.
type span struct {
	name string
	took []time.Duration
}

// ok: the limit held, every pod was replaced, and no request failed.
func (s summary) ok() bool { return s.worst <= s.limit && s.replaced == s.desired && s.requests.OK() }

// summarize draws the sum of a record.
func (r *record) summarize(limit int, took time.Duration, w writes) summary {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := summary{desired: r.desired, worst: r.worst, limit: limit, took: took, writes: w}
	held := span{name: "held (PreCheck)"}
	off := span{name: "traffic off (Preparing)"}
	removal := span{name: "removal (Operating to gone)"}
	start := span{name: "new pod to ServiceAvailable"}
	for _, pod := range r.gone {
		if !pod.old {
			continue
		}
		s.replaced++
		held.add(pod.since[waiting], pod.since[preparing])
		off.add(pod.since[preparing], firstOf(pod.since[operating], pod.since[terminating]))
		removal.add(firstOf(pod.since[operating], pod.since[terminating]), pod.ended)
	}
	for _, pod := range r.pods {
		start.add(pod.since[starting], pod.since[available])
	}
	s.spans = []span{held, off, removal, start}
	return s
}

func firstOf(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func (s *span) add(from, to time.Time) {
	if !from.IsZero() && !to.IsZero() {
		s.took = append(s.took, to.Sub(from))
	}
}

// percentile of the durations, 0 to 100, by nearest rank.
func (s span) percentile(p int) time.Duration {
	if len(s.took) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s.took))
	rank := (p*len(sorted) + 99) / 100
	return sorted[max(0, rank-1)]
}

func (s summary) print(out io.Writer) {
	fmt.Fprintf(out, "\npods rolled: %d of %d in %s\n", s.replaced, s.desired, s.took.Round(100*time.Millisecond))
	fmt.Fprintf(out, "max unavailable: %d (limit %d)\n", s.worst, s.limit)
	fmt.Fprintf(out, "operator writes per pod: %.1f (at most %d)\n", float64(s.writes.pods)/float64(s.desired), maxWritesPerPod)
	fmt.Fprintf(out, "operator writes: %d to pods, %d to pods by the adapter of the load balancer, %d to rules, %d events\n\n",
		s.writes.pods, s.writes.adapter, s.writes.rules, s.writes.events)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "time per phase\tpods\tp50\tp99\t")
	for _, part := range s.spans {
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t\n", part.name, len(part.took),
			part.percentile(50).Round(time.Millisecond), part.percentile(99).Round(time.Millisecond))
	}
	table.Flush()
	fmt.Fprintln(out)
	printRequests(out, s.requests)
}
