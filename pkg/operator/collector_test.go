package operator

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

func TestGCPercent(t *testing.T) {
	for live, want := range map[uint64]int{
		0: 400, 1 << 20: 400, 16 << 20: 400, 48 << 20: 200, 96 << 20: 150, 4800 << 20: 101,
	} {
		if got := gcPercent(live); got != want {
			t.Errorf("%d MiB live: GOGC %d, want %d", live>>20, got, want)
		}
	}
}

func TestPaceCollectorFollowsTheHeap(t *testing.T) {
	t.Setenv("GOGC", "")
	before := debug.SetGCPercent(50)
	defer debug.SetGCPercent(before)
	stop := PaceCollector()
	awaitGCPercent(t, func(percent int) bool { return percent == mostGCPercent })
	large := make([]byte, 96<<20)
	awaitGCPercent(t, func(percent int) bool { return 100 < percent && percent <= 150 })
	runtime.KeepAlive(large)
	stop()
	runtime.GC()
	awaitGCPercent(t, func(int) bool { return true })
	debug.SetGCPercent(70)
	for range 10 {
		runtime.GC()
	}
	if got := debug.SetGCPercent(70); got != 70 {
		t.Errorf("GOGC is %d after the end, want 70", got)
	}
}

func TestPaceCollectorLeavesGOGCOfTheEnvironment(t *testing.T) {
	t.Setenv("GOGC", "70")
	before := debug.SetGCPercent(70)
	defer debug.SetGCPercent(before)
	defer PaceCollector()()
	for range 10 {
		runtime.GC()
	}
	if got := debug.SetGCPercent(70); got != 70 {
		t.Errorf("GOGC is %d, want 70", got)
	}
}

// awaitGCPercent collects garbage until GOGC is as wanted.
func awaitGCPercent(t *testing.T, wanted func(int) bool) {
	t.Helper()
	percent := 0
	for began := time.Now(); time.Since(began) < 10*time.Second; {
		runtime.GC()
		percent = currentGCPercent()
		if wanted(percent) {
			return
		}
		runtime.Gosched()
	}
	t.Fatalf("GOGC is %d", percent)
}

// currentGCPercent reads GOGC without setting it.
func currentGCPercent() int {
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(sample)
	return int(sample[0].Value.Uint64())
}
