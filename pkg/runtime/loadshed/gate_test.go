package loadshed_test

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/podops-dev/podops/pkg/runtime/loadshed"
)

func TestFits(t *testing.T) {
	for name, tc := range map[string]struct {
		most, used, inFlight, requested int64
		want                            bool
	}{
		"within the limit":               {most: 100, used: 50, inFlight: 10, requested: 40, want: true},
		"one byte too many":              {most: 100, used: 50, inFlight: 10, requested: 41},
		"zero bytes when full":           {most: 100, used: 100, requested: 0, want: true},
		"zero bytes when more is in use": {most: 100, used: 101, requested: 0},
		"more than the limit":            {most: 100, requested: 101},
		"too much work in flight":        {most: 100, used: 10, inFlight: 90, requested: 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := loadshed.Fits(tc.most, tc.used, tc.inFlight, tc.requested); got != tc.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

// TestGateIsNeverOverfull shows that admitted work always fits.
func TestGateIsNeverOverfull(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		used := int64(0)
		gate := loadshed.New(loadshed.Options{Limit: 1000, Share: 0.8, Used: func() int64 { return used }, Collect: func() {}})
		var leaves []func()
		sum := int64(0)
		sizes := []int64{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			used = rapid.Int64Range(0, 900).Draw(t, "used")
			if len(leaves) > 0 && rapid.Bool().Draw(t, "leave") {
				leaves[0]()
				sum -= sizes[0]
				leaves, sizes = leaves[1:], sizes[1:]
				continue
			}
			bytes := rapid.Int64Range(0, 300).Draw(t, "bytes")
			leave, err := gate.Enter(bytes)
			if fits := used+sum+bytes <= 800; fits != (err == nil) {
				t.Fatalf("%d of 800 bytes used, %d in flight, %d more: %v", used, sum, bytes, err)
			}
			if err == nil {
				leaves, sizes, sum = append(leaves, leave), append(sizes, bytes), sum+bytes
			}
			if gate.InFlight() != sum {
				t.Fatalf("%d bytes in flight, want %d", gate.InFlight(), sum)
			}
		}
	})
}

func TestARejectionContainsTheWayOut(t *testing.T) {
	gate := loadshed.New(loadshed.Options{Limit: 100, Used: func() int64 { return 90 }, Collect: func() {}})
	_, err := gate.Enter(1)
	full := &loadshed.FullError{}
	if !errors.As(err, &full) || full.RetryAfter != 5*time.Second || !strings.Contains(err.Error(), "try again in 5s") {
		t.Errorf("got %v", err)
	}
}

// TestAGateThatRejectsCollects shows that it does so once in ten seconds.
func TestAGateThatRejectsCollects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		used, collected := int64(1000), 0
		gate := loadshed.New(loadshed.Options{Limit: 1000, Used: func() int64 { return used }, Collect: func() { collected++ }})
		for range 30 {
			if _, err := gate.Enter(1); err == nil {
				t.Error("work is admitted")
			}
			synctest.Wait()
			time.Sleep(time.Second)
		}
		if collected != 3 {
			t.Errorf("collected %d times in 30 s, want 3", collected)
		}
		used = 0
		if _, err := gate.Enter(1); err != nil {
			t.Errorf("rejected when the memory is free again: %v", err)
		}
	})
}

func TestWithoutALimitAllWorkIsAdmitted(t *testing.T) {
	gate := loadshed.New(loadshed.Options{Used: func() int64 { return 1 << 60 }})
	if _, err := gate.Enter(1 << 40); err != nil {
		t.Error(err)
	}
}

// TestLiveFollowsTheHeap shows that referenced memory counts, and garbage does not.
func TestLiveFollowsTheHeap(t *testing.T) {
	const size = 64 << 20
	runtime.GC()
	before := loadshed.Live()
	held := make([]byte, size)
	runtime.GC()
	if grown := loadshed.Live() - before; grown < size*9/10 || grown > size*3/2 {
		t.Errorf("%d bytes are held, and %d more are live", size, grown)
	}
	runtime.KeepAlive(held) // held ends here
	runtime.GC()
	if left := loadshed.Live() - before; left > size/10 {
		t.Errorf("%d bytes are live when nothing is held", left)
	}
}
