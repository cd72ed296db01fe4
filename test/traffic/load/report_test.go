package load

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func tallyOf(outcomes ...Outcome) *tally {
	t := &tally{}
	for _, o := range outcomes {
		t.count(o)
	}
	return t
}

func answered(kind Kind, pod string, latency time.Duration) Outcome {
	return Outcome{Kind: kind, Status: 200, Pod: pod, Latency: latency}
}

func lost(kind Kind, status int, latency time.Duration) Outcome {
	o := Outcome{Kind: kind, Status: status, Latency: latency, Err: ErrReset}
	if status != 0 {
		o.Err = fmt.Errorf("%w %d", ErrStatus, status)
	}
	return o
}

func TestReportReadsAsATable(t *testing.T) {
	report := tallyOf(
		answered(KeepAlive, "web-0", 2*time.Millisecond), answered(KeepAlive, "web-1", 4*time.Millisecond),
		lost(KeepAlive, 503, time.Second), lost(OneShot, 503, time.Second), lost(OneShot, 0, 3*time.Second),
	).snapshot()
	report.Took = 12340 * time.Millisecond
	var out bytes.Buffer
	if err := report.Print(&out); err != nil {
		t.Fatal(err)
	}
	want := `
                          requests  failed    p50  p99  max  duration
  connection-per-request         2       2  1.01s   3s   3s     12.3s
              keep-alive         3       1 4.03ms   1s   1s     12.3s
                     all         5       3  1.01s   3s   3s     12.3s
failed: 2 status 503, 1 connection reset
`
	if diff := cmp.Diff(fields(want), fields(out.String())); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	if report.OK() {
		t.Error("a report with failures is OK")
	}
}

// fields returns the words of every line: the tabwriter aligns the columns.
func fields(text string) [][]string {
	var lines [][]string
	for line := range strings.Lines(strings.TrimSpace(text)) {
		lines = append(lines, strings.Fields(line))
	}
	return lines
}

func TestReportOfNothingIsNotOK(t *testing.T) {
	if (&Report{}).OK() {
		t.Error("a report without requests is OK")
	}
}

func TestReportsAddUp(t *testing.T) {
	first := []Outcome{answered(KeepAlive, "web-0", 1), lost(OneShot, 503, 2)}
	second := []Outcome{answered(OneShot, "web-0", 3), answered(KeepAlive, "web-1", 4), lost(KeepAlive, 0, 5)}
	sum := tallyOf(first...).snapshot()
	sum.Took = time.Second
	other := tallyOf(second...).snapshot()
	other.Took = time.Minute
	sum.Add(other)
	want := tallyOf(append(first, second...)...).snapshot()
	want.Took = time.Minute + time.Second
	options := []cmp.Option{cmp.AllowUnexported(Histogram{}), cmp.Transformer("error", func(err error) string { return fmt.Sprint(err) })}
	if diff := cmp.Diff(want, sum, options...); diff != "" {
		t.Errorf("sum (-want +got):\n%s", diff)
	}
}

func TestSnapshotDoesNotChange(t *testing.T) {
	counting := tallyOf(answered(KeepAlive, "web-0", 1))
	before := counting.snapshot()
	counting.count(answered(KeepAlive, "web-0", 1))
	counting.count(lost(KeepAlive, 503, 1))
	if before.Requests != 1 || before.Kinds[KeepAlive].Requests != 1 || before.Pods["web-0"] != 1 || before.Failed != 0 {
		t.Errorf("a snapshot of 1 request has %d, pods %v, %d failed", before.Requests, before.Pods, before.Failed)
	}
}

func TestReportIsBounded(t *testing.T) {
	counting := &tally{}
	for n := range 2 * maxPods {
		counting.count(answered(KeepAlive, fmt.Sprintf("web-%d", n), 1))
		counting.count(lost(KeepAlive, 0, 1))
	}
	report := counting.snapshot()
	if got := len(report.Pods); got != maxPods+1 || report.Pods[others] != maxPods {
		t.Errorf("%d pods, %d others; want %d and %d", got, report.Pods[others], maxPods+1, maxPods)
	}
	if got := len(report.Failures); got != maxFailures || report.Failed != 2*maxPods {
		t.Errorf("%d failures kept of %d, want %d of %d", got, report.Failed, maxFailures, 2*maxPods)
	}
}
