package opa_test

import (
	"fmt"
	"runtime"
	"testing"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/engine/opa"
)

func BenchmarkEvaluate(b *testing.B) {
	counts := rule.Counts{Selected: 10000, Desired: 10000, Available: 9000}
	for _, entry := range []appsv1alpha1.TransitionRule{labelCheck("ready"), budget("25%")} {
		program := prepared(b, entry)
		for _, size := range []int{0, 1, 10, 100, 1000} {
			requests := []rule.Request{}
			for i := range size {
				requests = append(requests, request(i, true))
			}
			b.Run(fmt.Sprintf("%s/%d", program.Kind(), size), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := program.Evaluate(b.Context(), program.Stage(), rule.Environment{Counts: counts}, requests); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkEvaluateCustom evaluates a user's module for one pod, alone and among others. All pods have two containers and two
// conditions, which only the modules that name them pay for.
func BenchmarkEvaluateCustom(b *testing.B) {
	for _, bench := range []struct {
		name, source string
		pods         int
	}{
		{name: "pod", source: "package rule\n\nallow if input.pod.labels.ready == \"true\"\n"},
		{name: "owner", source: "package rule\n\nallow if input.owner.desired >= 0\n"},
		{name: "node", source: "package rule\n\nallow if not input.node.unschedulable\n"},
		{name: "details", source: "package rule\n\nallow if input.pod.restarts < 5\n"},
		{name: "pods", pods: 1000, source: "package rule\n\nallow if {\n\tevery pod in input.pods {\n\t\tnot pod.permitted\n\t}\n}\n"},
		{name: "details of pods", pods: 1000, source: "package rule\n\nallow if {\n\tevery pod in input.pods {\n\t\tpod.restarts < 5\n\t}\n}\n"},
	} {
		program, err := newEngine(b, patient()).Prepare(b.Context(), custom(b, bench.source))
		if err != nil {
			b.Fatal(err)
		}
		env := rule.Environment{}
		for i := range bench.pods {
			env.Pods = append(env.Pods, detailedAt(i).Pod)
		}
		requests := []rule.Request{detailedAt(0)}
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				result, err := program.Evaluate(b.Context(), program.Stage(), env, requests)
				if err != nil || result.Verdicts[requests[0].Key()].Outcome != rule.Passed {
					b.Fatal(result, err)
				}
			}
		})
	}
}

// BenchmarkPrepare compiles a new program each time.
func BenchmarkPrepare(b *testing.B) {
	module := custom(b, "package rule\n\nallow if input.pod.labels.ready == \"true\"\n")
	e := newEngine(b, opa.Options{Memory: 100_000})
	for i := 0; b.Loop(); i++ {
		// Two modules alternate in a cache for one.
		module.Custom.Source = fmt.Sprintf("package rule\n\nallow if input.pod.labels.ready == \"%d\"\n", i%2)
		if _, err := e.Prepare(b.Context(), module); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkThousandRules prepares 1,000 rules with different literals, and reports the time, the
// heap and the compilations. Rules with the same user's module share its program.
func BenchmarkThousandRules(b *testing.B) {
	const rules = 1000
	shared := custom(b, "package rule\n\nallow if input.pod.labels.zone == input.parameters.zone\n")
	for name, module := range map[string]func(i int) spec.Module{
		"built-in": func(i int) spec.Module {
			rule := budget(fmt.Sprintf("%d%%", 1+i%100))
			if i%2 == 0 {
				rule = labelCheck("ready")
				rule.LabelCheck.Requires.MatchLabels["n"] = fmt.Sprint(i)
			}
			rule.Name = fmt.Sprintf("rule-%d", i)
			return compiled(b, rule)
		},
		"custom": func(i int) spec.Module {
			one, user := shared, *shared.Custom
			user.Parameters = fmt.Appendf(nil, `{"zone": "z%d"}`, i)
			one.Custom = &user
			return one
		},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				e := newEngine(b, opa.Options{})
				before := heap()
				kept := make([]*opa.Program, 0, rules)
				for i := range rules {
					program, err := e.Prepare(b.Context(), module(i))
					if err != nil {
						b.Fatal(err)
					}
					kept = append(kept, program)
				}
				b.ReportMetric(float64(heap()-before)/rules, "bytes/rule")
				b.ReportMetric(float64(e.Compilations()), "compilations")
				runtime.KeepAlive(kept)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/rules, "us/rule")
		})
	}
}

// heap returns the heap in use after a garbage collection.
func heap() uint64 {
	runtime.GC()
	stats := runtime.MemStats{}
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
