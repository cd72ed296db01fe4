package operator

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
)

const (
	// garbageBytes is the garbage that the manager may have beyond the default of Go, which is as
	// much as there is live memory.
	garbageBytes = 48 << 20

	// mostGCPercent bounds GOGC, in case a heap that was small grows much before the next collection.
	mostGCPercent = 400
)

// PaceCollector keeps GOGC such that the garbage collector runs when there is as much garbage as
// live memory and garbageBytes more. A collection costs time for all live memory, and most
// allocations of an admission review or a watch event are garbage at once. GOMEMLIMIT holds in any
// case, and a GOGC of the environment wins. The returned function ends it.
func PaceCollector() (stop func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	pacer := &collectorPacer{}
	pacer.arm()
	return func() { pacer.stopped.Store(true) }
}

// collectorPacer sets GOGC after each collection.
type collectorPacer struct {
	stopped atomic.Bool
}

// arm makes an object that is garbage, whose cleanup sets GOGC after the next collection.
func (p *collectorPacer) arm() {
	runtime.AddCleanup(&struct{ p *collectorPacer }{p}, (*collectorPacer).collected, p)
}

func (p *collectorPacer) collected() {
	if p.stopped.Load() {
		return
	}
	debug.SetGCPercent(gcPercent(liveBytes()))
	p.arm()
}

// gcPercent returns the GOGC for a heap with these live bytes.
func gcPercent(live uint64) int {
	return int(min(100+100*garbageBytes/max(live, 1), mostGCPercent))
}

// liveBytes returns the memory that the last collection found in use.
func liveBytes() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		return garbageBytes
	}
	return sample[0].Value.Uint64()
}
