package loadshed

import "runtime/metrics"

// Live returns the bytes that the process cannot free: the heap that was alive at the last
// collection, stacks, and the memory of the runtime. Garbage is not included: close to GOMEMLIMIT
// the collector frees it.
func Live() int64 {
	samples := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/stacks:bytes"},
		{Name: "/memory/classes/os-stacks:bytes"},
		{Name: "/memory/classes/metadata/mcache/inuse:bytes"},
		{Name: "/memory/classes/metadata/mspan/inuse:bytes"},
		{Name: "/memory/classes/metadata/other:bytes"},
		{Name: "/memory/classes/profiling/buckets:bytes"},
		{Name: "/memory/classes/other:bytes"},
	}
	metrics.Read(samples)
	sum := int64(0)
	for _, sample := range samples {
		if sample.Value.Kind() == metrics.KindUint64 {
			sum += int64(sample.Value.Uint64())
		}
	}
	return sum
}
