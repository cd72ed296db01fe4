package uncontrolledpods

import "time"

const (
	// settledFor is the time for which the status of a workload must count more pods than the cache has until its pods
	// are listed. After each pod that is replaced, the status is behind for a moment.
	settledFor = 10 * time.Second

	// refresh is the interval in which the pods are listed again while a workload has pods without the label. A change
	// of its status has them listed earlier, after spacing at the earliest.
	refresh = 30 * time.Second
	spacing = 3 * time.Second

	// maxPods bounds a list. Pods beyond it count as missing.
	maxPods = 200
)

// due returns whether the pods of a workload are to be listed now, or how soon to call due again; 0 for never. since is when the
// workload was first seen to have more pods than the cache; zero for a workload that has not been.
func due(since time.Time, more bool, now time.Time) (list bool, wait time.Duration) {
	settles := since.Add(settledFor)
	switch {
	case since.IsZero():
		if more {
			return false, settledFor
		}
		return false, 0
	case !now.Before(settles):
		return true, 0 // also if the status is behind: it has pods without the label until a list has none
	case more:
		return false, settles.Sub(now)
	default:
		return false, 0
	}
}
