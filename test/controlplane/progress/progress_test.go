package progress

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
)

func TestLeft(t *testing.T) {
	for _, tc := range []struct {
		elapsed     time.Duration
		done, total float64
		want        string
	}{
		{0, 0, 100, ""},
		{500 * time.Millisecond, 1, 100, ""},
		{10 * time.Second, 0, 100, ""},
		{10 * time.Second, 101, 100, ""},
		{10 * time.Second, 90, 100, "a few seconds left"},
		{10 * time.Second, 20, 100, "about 40 s left"},
		{10 * time.Second, 10, 100, "about 1.5 min left"},
		{10 * time.Second, 7, 100, "about 2 min left"},
		{time.Minute, 10, 100, "about 9 min left"},
	} {
		got := ""
		if left, known := Left(tc.elapsed, tc.done, tc.total); known {
			got = Text(left)
		}
		if got != tc.want {
			t.Errorf("%s, %v of %v: want %q, got %q", tc.elapsed, tc.done, tc.total, tc.want, got)
		}
	}
}

// TestShowPrintsLinesInALog shows that a log gets a line at each interval, and none after the stop.
func TestShowPrintsLinesInALog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		stop := Show(&out, func() string { return "halfway" })
		time.Sleep(2*lineInterval + time.Second)
		stop()
		time.Sleep(lineInterval)
		if got, want := out.String(), "halfway\nhalfway\n"; got != want {
			t.Errorf("want %q, got %q", want, got)
		}
	})
}
