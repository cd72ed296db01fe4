package backoff_test

import (
	"math"
	"testing"
	"time"

	"github.com/podops-dev/podops/pkg/runtime/backoff"
)

func TestDelay(t *testing.T) {
	for name, tc := range map[string]struct {
		first time.Duration
		times int
		limit time.Duration
		want  time.Duration
	}{
		"a negative number of times":     {time.Second, -1, time.Minute, time.Second},
		"the first":                      {time.Second, 0, time.Minute, time.Second},
		"the second":                     {time.Second, 1, time.Minute, 2 * time.Second},
		"the sixth":                      {time.Second, 5, time.Minute, 32 * time.Second},
		"the limit":                      {time.Second, 6, time.Minute, time.Minute},
		"any number of times":            {time.Second, math.MaxInt, time.Minute, time.Minute},
		"a first delay beyond the limit": {time.Hour, 0, time.Minute, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			if got := backoff.Delay(tc.first, tc.times, tc.limit); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestMinDelay(t *testing.T) {
	for name, tc := range map[string]struct{ a, b, want time.Duration }{
		"the shorter":                 {time.Second, time.Minute, time.Second},
		"in any order":                {time.Minute, time.Second, time.Second},
		"zero is none":                {0, time.Second, time.Second},
		"zero is none, as the second": {time.Second, 0, time.Second},
		"a delay that has passed":     {-time.Second, time.Minute, time.Minute},
		"neither":                     {0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := backoff.MinDelay(tc.a, tc.b); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}
