package podtransitionrule

import "time"

// burst is how many batches a record may have within one interval, after a rest: many pods begin to wait at a time, as in a
// drain, and the first batch has the first of them only.
const burst = 4

// bucket bounds how often a record has a batch: once in each interval, and burst times after a rest, evenly spaced.
type bucket struct {
	// last is the time of the last batch; zero before the first one.
	last time.Time

	// used is the number of batches, up to burst, that were not paid for at that time. An interval pays for one.
	used float64
}

// level returns the number of batches that are not paid for.
func (b bucket) level(now time.Time, interval time.Duration) float64 {
	if interval == 0 {
		return 0
	}
	return max(0, b.used-float64(now.Sub(b.last))/float64(interval))
}

// take returns the budget after a batch. A batch that was not due yet costs nothing more.
func (b bucket) take(now time.Time, interval time.Duration) bucket {
	return bucket{last: now, used: min(burst, b.level(now, interval)+1)}
}

// due returns how soon the next batch is due; 0 or less for now.
func (b bucket) due(now time.Time, interval time.Duration) time.Duration {
	if b.last.IsZero() {
		return 0
	}
	spaced := b.last.Add(interval / burst).Sub(now)
	return max(spaced, time.Duration((b.level(now, interval)+1-burst)*float64(interval)))
}
