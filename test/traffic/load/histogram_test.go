package load

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func durations(t *rapid.T, label string) []time.Duration {
	// Both ends of the range, and every order of magnitude between.
	one := rapid.Custom(func(t *rapid.T) time.Duration {
		return time.Duration(rapid.Int64Range(0, int64(1)<<rapid.IntRange(1, 41).Draw(t, "bits")).Draw(t, "nanos"))
	})
	return rapid.SliceOfN(one, 1, 200).Draw(t, label)
}

func histogramOf(all []time.Duration) *Histogram {
	h := &Histogram{}
	for _, d := range all {
		h.Add(d)
	}
	return h
}

func TestPercentileIsThatOfTheSortedDurations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := durations(t, "durations")
		percent := rapid.IntRange(1, 100).Draw(t, "percent")
		got := histogramOf(all).Percentile(float64(percent))
		slices.Sort(all)
		exact := all[(percent*len(all)+99)/100-1]
		if bound := exact + exact/precision + time.Microsecond; got < exact || got > bound {
			t.Errorf("p%d = %s, want %s to %s", percent, got, exact, bound)
		}
	})
}

func TestMergedHistogramsAreOneOfEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := durations(t, "a"), durations(t, "b")
		merged := histogramOf(a)
		merged.Merge(histogramOf(b))
		if diff := cmp.Diff(histogramOf(append(a, b...)), merged, cmp.AllowUnexported(Histogram{})); diff != "" {
			t.Errorf("merged (-want +got):\n%s", diff)
		}
	})
}

func TestHistogramAtItsEnds(t *testing.T) {
	if got := (&Histogram{}).Percentile(99); got != 0 {
		t.Errorf("p99 of nothing = %s, want 0", got)
	}
	h := histogramOf([]time.Duration{-time.Second, 1000 * time.Hour})
	if got := h.Percentile(50); got > time.Microsecond {
		t.Errorf("a negative duration counts as %s, want 0", got)
	}
	if got := h.Percentile(100); got < time.Hour || got > 2*time.Hour {
		t.Errorf("1000 hours count as %s, want a little more than an hour", got)
	}
	if got := h.Max(); got != 1000*time.Hour {
		t.Errorf("max = %s, want the exact one", got)
	}
}

func TestEveryMicrosecondHasItsBucket(t *testing.T) {
	before := -1
	for micros := range uint64(1 << 16) {
		bucket := bucketOf(micros)
		if bucket < before || bucket > before+1 {
			t.Fatalf("%d us is in bucket %d, after %d", micros, bucket, before)
		}
		if bound := upperBound(bucket); bound < time.Duration(micros)*time.Microsecond {
			t.Fatalf("%d us is above the bound %s of its bucket", micros, bound)
		}
		before = bucket
	}
}
