package rolloutview_test

import (
	"slices"
	"testing"
	"time"

	"github.com/podops-dev/podops/pkg/view/rolloutview"
)

// BenchmarkRedraw measures a redraw of a Deployment with 500 pods, from a snapshot to the text of a frame of
// 120 columns and 50 rows, and reports the percentiles 50 and 95. The goal is a percentile 95 below 100 ms.
func BenchmarkRedraw(b *testing.B) {
	r := rolling(480).pods("1", 300, serving).pods("1", 60, waiting).pods("1", 3, operating).pods("2", 120, serving).pods("2", 17, starting).
		rules("NoRoom", "web/availability", noRoom)
	took := make([]time.Duration, 0, 1024)
	last := rolloutview.View{}
	for b.Loop() {
		began := time.Now()
		view := rolloutview.Of(&r.in, r.target, at(20))
		rolloutview.Changes(last, view)
		if len(view.Frame(120, 50).Colored()) == 0 {
			b.Fatal("the frame is empty")
		}
		last = view
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	percentile := func(p int) float64 { return float64(took[(len(took)-1)*p/100].Microseconds()) / 1000 }
	b.ReportMetric(percentile(50), "p50-ms")
	b.ReportMetric(percentile(95), "p95-ms")
}
