package main

import (
	"math"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// cpu returns the processor time that this process has used, garbage collection included.
func cpu() time.Duration {
	return clock(unix.CLOCK_PROCESS_CPUTIME_ID)
}

func clock(id int32) time.Duration {
	now := unix.Timespec{}
	if err := unix.ClockGettime(id, &now); err != nil {
		panic(err) // every Linux has these clocks
	}
	return time.Duration(now.Nano())
}

// subject is measured: setup prepares the given number of runs, and is not measured; run is
// one of them.
type subject struct {
	name  string
	setup func(runs int)
	run   func(i int)
}

// cost of one run, as the median over the samples.
type cost struct {
	cpu    time.Duration
	allocs float64

	// samples are the CPU of one run in nanoseconds, in the order they were taken.
	samples []float64
}

// over returns the ratio of this cost to the other cost: the median over the pairs of
// samples that were taken one after the other. A drift of the speed of the machine affects
// both samples of a pair.
func (c cost) over(other cost) float64 {
	var ratios []float64
	for i := range min(len(c.samples), len(other.samples)) {
		ratios = append(ratios, c.samples[i]/other.samples[i])
	}
	return quantile(ratios, 0.5)
}

// sampleTime is the duration of one sample, unless one run takes longer.
const sampleTime = 4 * time.Millisecond

// A subject whose samples take long gets fewer of them.
const (
	fewSamples = 3
	longEnough = 2 * time.Second
)

// measure takes samples of the subjects in turn, so that noise affects all of them.
func measure(subjects []subject, samples int) []cost {
	runs := make([]int, len(subjects))
	for i, s := range subjects {
		runs[i] = calibrate(s)
	}
	times := make([][]float64, len(subjects))
	allocs := make([][]float64, len(subjects))
	total := make([]time.Duration, len(subjects))
	for taken := range samples {
		for i, s := range subjects {
			if taken >= fewSamples && total[i] >= longEnough {
				continue
			}
			runtime.GC() // so that garbage of other subjects does not count
			spent, allocated := sample(s, runs[i])
			total[i] += spent
			times[i] = append(times[i], float64(spent)/float64(runs[i]))
			allocs[i] = append(allocs[i], float64(allocated)/float64(runs[i]))
		}
	}
	costs := make([]cost, len(subjects))
	for i := range subjects {
		costs[i] = cost{cpu: time.Duration(quantile(times[i], 0.5)), allocs: quantile(allocs[i], 0.5), samples: times[i]}
	}
	return costs
}

// calibrate returns how many runs make a sample. It also warms up.
func calibrate(s subject) int {
	const most = 1 << 14
	for runs := 1; ; {
		first, _ := sample(s, runs)
		second, _ := sample(s, runs)
		spent := min(first, second) // the first may have warmed up, or included a garbage collection
		if spent >= sampleTime || runs == most {
			return runs
		}
		runs = min(most, runs*16, 1+int(float64(runs)*1.2*float64(sampleTime)/float64(max(spent, 1))))
	}
}

func sample(s subject, runs int) (spent time.Duration, allocated uint64) {
	if s.setup != nil {
		s.setup(runs)
	}
	before, after := runtime.MemStats{}, runtime.MemStats{}
	runtime.ReadMemStats(&before)
	start := cpu()
	for i := range runs {
		s.run(i)
	}
	spent = cpu() - start
	runtime.ReadMemStats(&after)
	return spent, after.Mallocs - before.Mallocs
}

// ballast is the heap of a small manager.
const ballast = 64 << 20

// latencies returns the processor time of single runs, in several series: on the wall
// clock, other processes of a shared machine would hide them. Garbage collection counts as
// far as it delays the run, and happens as often as in a manager with a heap of ballast,
// which has run for a while: allocating memory that a heap has never used costs the kernel
// more than a round takes.
func latencies(s subject, series, runs int) [][]float64 {
	held := make([]byte, ballast)
	defer runtime.KeepAlive(held)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for until := collections() + 2; collections() < until; {
		latencyOf(s, runs)
	}
	all := make([][]float64, 0, series)
	for range series {
		all = append(all, latencyOf(s, runs))
	}
	return all
}

// collections returns the number of garbage collections so far.
func collections() uint32 {
	stats := runtime.MemStats{}
	runtime.ReadMemStats(&stats)
	return stats.NumGC
}

func latencyOf(s subject, runs int) []float64 {
	s.setup(runs)
	took := make([]float64, 0, runs)
	for i := range runs {
		start := clock(unix.CLOCK_THREAD_CPUTIME_ID)
		s.run(i)
		took = append(took, float64(clock(unix.CLOCK_THREAD_CPUTIME_ID)-start))
	}
	return took
}

func quantile(values []float64, at float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)-1, int(at*float64(len(sorted))))]
}

// exponent returns the slope of log y over log x: 1 for a linear law, 2 for a quadratic
// law.
func exponent(x, y []float64) float64 {
	var sx, sy, sxx, sxy float64
	for i := range x {
		lx, ly := math.Log(x[i]), math.Log(y[i])
		sx, sy, sxx, sxy = sx+lx, sy+ly, sxx+lx*lx, sxy+lx*ly
	}
	n := float64(len(x))
	return (n*sxy - sx*sy) / (n*sxx - sx*sx)
}

// heap returns the bytes in use after a garbage collection.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	stats := runtime.MemStats{}
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
