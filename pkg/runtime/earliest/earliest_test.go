package earliest_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/podops-dev/podops/pkg/runtime/earliest"
)

// TestTimes compares a set with a map, after any sequence of changes.
func TestTimes(t *testing.T) {
	epoch := time.Unix(1_700_000_000, 0)
	rapid.Check(t, func(t *rapid.T) {
		var times earliest.Times[int]
		want := map[int]time.Time{}
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				key, at := rapid.IntRange(0, 9).Draw(t, "key"), epoch.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "seconds"))*time.Second)
				times.Set(key, at)
				want[key] = at
			},
			"remove": func(t *rapid.T) {
				key := rapid.IntRange(0, 9).Draw(t, "key")
				times.Remove(key)
				delete(want, key)
			},
			"": func(t *rapid.T) {
				first, some := time.Time{}, false
				for _, at := range want {
					if !some || at.Before(first) {
						first, some = at, true
					}
				}
				got, ok := times.First()
				if ok != some || !got.Equal(first) || times.Len() != len(want) {
					t.Fatalf("the first of %d is %s (%t), want %s (%t) of %d", times.Len(), got, ok, first, some, len(want))
				}
			},
		})
	})
}
