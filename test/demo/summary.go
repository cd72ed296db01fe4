package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/podops-dev/podops/pkg/view/rolloutview"
	"github.com/podops-dev/podops/test/traffic/load"
)

// maxWritesPerPod bounds the writes for a replaced pod and its successor: begin, permit and
// delete; gate and availability of the new pod.
const maxWritesPerPod = 5

// writes counts the requests of the operator during the rollout, including rejected requests.
type writes struct {
	pods, adapter, rules, events int
}

// summary is the result that the demo prints at the end.
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

// span is the time that pods spent in one part of the rollout.
type span struct {
	name string
	took []time.Duration
}

// ok reports whether the limit held, every pod was replaced, and no request failed.
func (s summary) ok() bool { return s.worst <= s.limit && s.replaced == s.desired && s.requests.OK() }

// summarize returns the result of a rollout.
func (r *record) summarize(limit int, took time.Duration, w writes) summary {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := summary{desired: r.desired, worst: r.worst, limit: limit, took: took, writes: w}
	waited := span{name: "waiting (PreCheck)"}
	off := span{name: "traffic off (Preparing)"}
	removal := span{name: "removal (Operating to gone)"}
	start := span{name: "new pod to ServiceAvailable"}
	for _, pod := range r.gone {
		if !pod.old {
			continue
		}
		s.replaced++
		waited.add(pod.since[rolloutview.PhasePreCheck], pod.since[rolloutview.PhasePreparing])
		off.add(pod.since[rolloutview.PhasePreparing], firstOf(pod.since[rolloutview.PhaseOperating], pod.since[rolloutview.PhaseTerminating]))
		removal.add(firstOf(pod.since[rolloutview.PhaseOperating], pod.since[rolloutview.PhaseTerminating]), pod.ended)
	}
	for _, pod := range r.pods {
		start.add(pod.since[rolloutview.PhaseStarting], pod.since[rolloutview.PhaseAvailable])
	}
	s.spans = []span{waited, off, removal, start}
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

// percentile returns the percentile p of the durations, 0 to 100, by nearest rank.
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
	if s.ok() {
		fmt.Fprintf(out, "\nIt held: %d of %d rolled, at most %d unavailable (limit %d), %d requests, %d failed.\n\n%s",
			s.replaced, s.desired, s.worst, s.limit, s.requests.Requests, s.requests.Failed, whatNext)
	}
}

// whatNext is the end of the output when everything held.
const whatNext = `Try it yourself:
  make demo ARGS=-by-hand   approve the rollout yourself, on a page
  make cluster-up           a cluster to apply rules of your own to; then make run
  make traffic              the same behind HAProxy, beside a rollout without PodOps
`
