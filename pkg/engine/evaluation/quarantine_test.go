package evaluation

import (
	"testing"
	"time"
)

func TestStrikes(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	type miss struct {
		after time.Duration
		times int
		want  bool
	}
	for name, misses := range map[string][]miss{
		"three at once":           {{0, 3, true}},
		"one after the other":     {{0, 1, false}, {time.Minute, 1, false}, {2 * time.Minute, 1, true}},
		"none is none":            {{0, 2, false}, {time.Minute, 0, false}, {2 * time.Minute, 0, false}},
		"old ones do not count":   {{0, 2, false}, {strikeWindow, 1, false}, {strikeWindow + time.Minute, 1, false}},
		"many count no more than": {{0, 1000, true}, {2 * strikeWindow, 1, false}},
	} {
		t.Run(name, func(t *testing.T) {
			var s strikes
			for i, m := range misses {
				if got := s.add(m.times, start.Add(m.after)); got != m.want {
					t.Errorf("miss %d: enough %t, want %t", i, got, m.want)
				}
			}
		})
	}
}
