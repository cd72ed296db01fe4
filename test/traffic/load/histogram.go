package load

import (
	"math/bits"
	"time"
)

const (
	// precisionBits is the precision of a value: 1 part in 2^6.
	precisionBits = 6
	precision     = 1 << precisionBits

	// octaves is the number of octaves of microseconds above the exact range: up to 2^32
	// us, more than an hour.
	octaves = 26

	buckets = precision * (octaves + 1)
)

// Histogram counts durations in a fixed 14 KiB. Its values are at most 1/64 above the exact
// values, and never below. The zero value is empty.
type Histogram struct {
	counts [buckets]uint64
	total  uint64
	max    time.Duration
}

// Add counts a duration. A negative duration counts as 0, a duration of more than an hour as an
// hour.
func (h *Histogram) Add(d time.Duration) {
	d = max(d, 0)
	h.counts[bucketOf(uint64(d.Microseconds()))]++
	h.total++
	h.max = max(h.max, d)
}

// Merge adds the counts of another histogram.
func (h *Histogram) Merge(other *Histogram) {
	for i, count := range other.counts {
		h.counts[i] += count
	}
	h.total += other.total
	h.max = max(h.max, other.max)
}

// Count returns how many durations were added.
func (h *Histogram) Count() uint64 { return h.total }

// Max returns the longest duration, exactly; 0 for an empty histogram.
func (h *Histogram) Max() time.Duration { return h.max }

// Percentile returns the duration that p percent do not exceed, by nearest rank; 0 for
// an empty histogram. p is above 0 and at most 100.
func (h *Histogram) Percentile(p float64) time.Duration {
	if h.total == 0 {
		return 0
	}
	rank := max(1, uint64(ceil(p/100*float64(h.total))))
	var seen uint64
	for i, count := range h.counts {
		if seen += count; seen >= rank {
			return min(upperBound(i), h.max)
		}
	}
	return h.max
}

func ceil(f float64) float64 {
	whole := float64(uint64(f))
	// Products such as 0.99 * 100 are slightly above the integer.
	if f-whole > 1e-9 {
		return whole + 1
	}
	return whole
}

// bucketOf returns the bucket of a value. The values below 64 have their own buckets; from
// there on every octave has 64 buckets of equal width.
func bucketOf(micros uint64) int {
	if micros < precision {
		return int(micros)
	}
	shift := bits.Len64(micros) - precisionBits - 1
	return min((shift+1)*precision+int(micros>>shift)-precision, buckets-1)
}

// upperBound returns the largest duration in a bucket.
func upperBound(bucket int) time.Duration {
	if bucket < precision {
		return time.Duration(bucket+1)*time.Microsecond - 1
	}
	shift := bucket/precision - 1
	above := uint64(bucket%precision+precision+1) << shift
	return time.Duration(above)*time.Microsecond - 1
}
