package sandbox

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/engine/opa"
)

// BenchmarkEvaluate evaluates modules for pods that have changed, in this process and in a worker, and reports the
// CPU time of both processes.
func BenchmarkEvaluate(b *testing.B) {
	for name, tc := range map[string]struct {
		module          string
		others, waiting []int
	}{
		"small":  {module: "package rule\n\nallow if input.pod.labels.zone == \"z1\"\n", others: []int{0}, waiting: []int{1, 10, 100, 1000}},
		"others": {module: "package rule\n\nallow if {\n\tevery pod in input.pods {\n\t\tpod.name != \"a\"\n\t}\n}\n", others: []int{100, 1000}, waiting: []int{1}},
	} {
		for place, sandbox := range map[string]*Sandbox{"here": nil, "worker": New(Options{Timeout: patience})} {
			program := programIn(b, engineWith(b, opa.Options{CustomTimeout: time.Minute, RoundBudget: time.Minute}, sandbox), "shop", tc.module, `{}`)
			for _, others := range tc.others {
				for _, waiting := range tc.waiting {
					b.Run(fmt.Sprintf("%s/%s/%d among %d", name, place, waiting, others), func(b *testing.B) {
						benchmark(b, sandbox, program, environment(pods(others)), requests(pods(waiting)))
					})
				}
			}
		}
	}
}

func benchmark(b *testing.B, sandbox *Sandbox, program *opa.Program, env rule.Environment, waiting []rule.Request) {
	b.Helper()
	evaluate(b, program, env, waiting)
	round, before := 0, totalCPUTime(b, sandbox)
	for b.Loop() {
		round++
		for _, request := range waiting {
			request.Pod.Version = fmt.Sprint("v", round)
		}
		for i := range len(env.Pods) / 100 {
			env.Pods[(i+round)%len(env.Pods)].Version = fmt.Sprint("v", round)
		}
		for left := waiting; len(left) > 0; {
			result, err := program.Evaluate(b.Context(), program.Stage(), env, left)
			if err != nil {
				b.Fatal(err)
			}
			for len(left) > 0 && result.Verdicts[left[0].Key()].Code != rule.CodeNotReached {
				left = left[1:]
			}
		}
	}
	b.ReportMetric(float64((totalCPUTime(b, sandbox)-before).Microseconds())/float64(b.N)/float64(len(waiting)), "cpu-us/request")
}

// totalCPUTime returns the CPU time of this process and of its workers.
func totalCPUTime(b *testing.B, sandbox *Sandbox) time.Duration {
	b.Helper()
	total := time.Duration(0)
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		usage := syscall.Rusage{}
		if err := syscall.Getrusage(who, &usage); err != nil {
			b.Fatal(err)
		}
		total += time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	if sandbox != nil {
		for _, worker := range sandbox.workers.idle {
			total += worker.used()
		}
	}
	return total
}
