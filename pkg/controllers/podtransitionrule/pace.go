package podtransitionrule

import "time"

const (
	// statusInterval is the least time between two writes of a status without new reservations: its
	// numbers change with every pod. While it keeps changing, the interval doubles up to
	// longestStatusInterval.
	statusInterval        = time.Second
	longestStatusInterval = 5 * time.Second
)

// pace spaces out the writes of a human-readable status. A change after an interval without writes
// is written at once; changes that come sooner share a write at the end of the interval, and the
// next interval is longer. So the last change is written at most longestStatusInterval later.
type pace struct {
	// last is the time of the last write, of any kind; interval follows it, 0 at first.
	last     time.Time
	interval time.Duration

	// early is true if the status has changed during the interval.
	early bool
}

// due returns how long a status that has changed has to wait, at most longest after the last write;
// 0 if it is due.
func (p *pace) due(now time.Time, longest time.Duration) time.Duration {
	if p.last.IsZero() {
		return 0
	}
	left := max(0, p.last.Add(min(p.current(), longest)).Sub(now))
	p.early = p.early || left > 0
	return left
}

// written records a write because the status has changed.
func (p *pace) written(now time.Time) {
	if p.early {
		p.interval = min(2*p.current(), longestStatusInterval)
	} else {
		p.interval = statusInterval
	}
	p.shared(now)
}

// shared records a write that had another reason, and has the status with it.
func (p *pace) shared(now time.Time) { p.last, p.early = now, false }

func (p *pace) current() time.Duration { return max(p.interval, statusInterval) }
