package podtransitionrule

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podops-dev/podops/test/builders"
)

// writes returns the seconds at which a status is written that changes at some moments. At the
// moments of batches it is written in any case.
func writes(changes, batches map[time.Duration]bool, until time.Duration) []float64 {
	var p pace
	var at []float64
	changed := false
	for elapsed := time.Duration(0); elapsed <= until; elapsed += 100 * time.Millisecond {
		now := builders.Epoch.Add(elapsed)
		changed = changed || changes[elapsed]
		switch {
		case batches[elapsed]:
			p.shared(now)
			changed = false
		case changed && p.due(now, longestStatusInterval) == 0:
			p.written(now)
			at, changed = append(at, elapsed.Seconds()), false
		}
	}
	return at
}

// every returns the moments between two others.
func every(interval, from, until time.Duration) map[time.Duration]bool {
	moments := map[time.Duration]bool{}
	for at := from; at <= until; at += interval {
		moments[at] = true
	}
	return moments
}

func TestPace(t *testing.T) {
	const second = time.Second
	for name, tc := range map[string]struct {
		changes, batches map[time.Duration]bool
		want             []float64
	}{
		"a change after a quiet interval is written at once": {
			changes: map[time.Duration]bool{0: true, 1 * second: true, 2 * second: true, 9 * second: true}, want: []float64{0, 1, 2, 9},
		},
		"changes within an interval share the write at its end": {
			changes: every(100*time.Millisecond, 0, 900*time.Millisecond), want: []float64{0, 1},
		},
		"intervals grow while changes come": {changes: every(100*time.Millisecond, 0, 20*second), want: []float64{0, 1, 3, 7, 12, 17, 22}},
		"intervals are short again after a quiet interval": {
			changes: union(every(100*time.Millisecond, 0, 4*second), every(500*time.Millisecond, 15*second, 16*second)), want: []float64{0, 1, 3, 7, 15, 16},
		},
		"a batch has the status with it": {
			changes: every(100*time.Millisecond, 0, 6*second), batches: every(second, 500*time.Millisecond, 6*second), want: []float64{0, 6.5},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, writes(tc.changes, tc.batches, 30*second)); diff != "" {
				t.Errorf("seconds of writes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPaceOfCalls shows that a status with the result of a call does not wait for a long interval.
func TestPaceOfCalls(t *testing.T) {
	p := pace{last: builders.Epoch, interval: longestStatusInterval}
	if got := p.due(builders.Epoch.Add(200*time.Millisecond), statusInterval); got != 800*time.Millisecond {
		t.Errorf("due after %s, want 800ms", got)
	}
}

func union(a, b map[time.Duration]bool) map[time.Duration]bool {
	for at := range b {
		a[at] = true
	}
	return a
}
