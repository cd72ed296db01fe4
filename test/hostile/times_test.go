package hostile_test

import (
	"fmt"
	"slices"
	"time"
)

// series holds the durations of one kind of request.
type series []time.Duration

func (s series) count() int { return len(s) }

// quantile returns the value that a share of the series does not exceed; 0 of an empty one.
func (s series) quantile(share float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(len(sorted)-1, int(share*float64(len(sorted))))]
}

// ratio compares the p99 with that of another series.
func (s series) ratio(other series) float64 {
	return float64(s.quantile(0.99)) / float64(max(other.quantile(0.99), time.Millisecond))
}

func (s series) String() string {
	return fmt.Sprintf("%d, p50 %s, p99 %s", s.count(), s.quantile(0.5).Round(time.Millisecond), s.quantile(0.99).Round(time.Millisecond))
}

// times are the neighbour's: requests with admission webhooks, waits for a permit after the
// request, and answers to deletes that are deferred.
type times struct {
	admission, permit, held series
}

// and returns the times of both.
func (t times) and(other times) times {
	return times{
		admission: slices.Concat(t.admission, other.admission), permit: slices.Concat(t.permit, other.permit), held: slices.Concat(t.held, other.held),
	}
}

// named is one of the series of times.
type named struct {
	name string
	series
}

// each returns the series in a fixed order.
func (t times) each() []named {
	return []named{{"permits", t.permit}, {"admission", t.admission}, {"deferred deletes", t.held}}
}
