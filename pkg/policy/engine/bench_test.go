package engine_test

import (
	"fmt"
	"runtime"
	"testing"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/policy"
	"github.com/podops-dev/podops/pkg/policy/compile"
	"github.com/podops-dev/podops/pkg/policy/engine"
)

func BenchmarkEvaluate(b *testing.B) {
	counts := policy.Counts{Selected: 10000, Desired: 10000, Available: 9000}
	for _, rule := range []appsv1alpha1.TransitionRule{labelCheck("ready"), budget("25%")} {
		program := prepared(b, rule)
		for _, size := range []int{0, 1, 10, 100, 1000} {
			requests := []policy.Request{}
			for i := range size {
				requests = append(requests, request(i, true))
			}
			b.Run(fmt.Sprintf("%s/%d", program.Kind(), size), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := program.Evaluate(b.Context(), program.Stage(), policy.Surroundings{Counts: counts}, requests); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkPrepare(b *testing.B) {
	e := newEngine(b, engine.Options{Programs: 1})
	modules := []compile.Module{compiled(b, budget("25%")), compiled(b, budget("3"))}
	for i := 0; b.Loop(); i++ {
		// Two modules take turns in a cache for one.
		if _, err := e.Prepare(b.Context(), modules[i%2]); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkProgramMemory reports the heap that one program holds.
func BenchmarkProgramMemory(b *testing.B) {
	const programs = 50
	e := newEngine(b, engine.Options{Programs: programs})
	heap := func() uint64 {
		runtime.GC()
		stats := runtime.MemStats{}
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	for b.Loop() {
		before := heap()
		kept := []*engine.Program{}
		for i := range programs {
			rule := budget("25%")
			rule.Name = fmt.Sprintf("budget-%d", i)
			program, err := e.Prepare(b.Context(), compiled(b, rule))
			if err != nil {
				b.Fatal(err)
			}
			kept = append(kept, program)
		}
		b.ReportMetric(float64(heap()-before)/programs, "bytes/program")
		runtime.KeepAlive(kept)
		e = newEngine(b, engine.Options{Programs: programs})
	}
}
