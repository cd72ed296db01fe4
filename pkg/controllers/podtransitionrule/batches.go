package podtransitionrule

import "time"

// burst is how many batches a record may have within one interval, after a rest: many pods begin to wait at a time, as in a
// drain, and the first batch has the first of them only.
const burst = 4

// batches bounds how often a record has a batch: once in each interval, and burst times after a rest, evenly spaced. While pods
// are off traffic a record does not rest: pods that are permitted together become available one by one, and the next ones
// would have a batch each.
type batches struct {
	// last is the time of the last batch; zero before the first one.
	last time.Time

	// count is the number of batches since the last rest, at most burst.
	count int
}

// take returns the state after a batch. isAtRest is true if no pod is off traffic.
func (b batches) take(now time.Time, interval time.Duration, isAtRest bool) batches {
	switch {
	case isAtRest && !b.isRecent(now, interval):
		return batches{last: now, count: 1}
	case b.last.IsZero():
		return batches{last: now, count: burst}
	default:
		return batches{last: now, count: min(burst, b.count+1)}
	}
}

// due returns how soon the next batch is due; 0 or less for now.
func (b batches) due(now time.Time, interval time.Duration) time.Duration {
	if b.count < burst {
		interval /= burst
	}
	return b.last.Add(interval).Sub(now)
}

// isRecent reports whether the last batch was less than an interval ago.
func (b batches) isRecent(now time.Time, interval time.Duration) bool {
	return now.Sub(b.last) < interval
}
