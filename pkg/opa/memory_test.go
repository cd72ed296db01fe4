package opa_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/opa"
	"github.com/podops-dev/podops/pkg/rule"
	"github.com/podops-dev/podops/pkg/rule/spec"
)

const smallest = "package rule\n\nallow if input.pod.ready\n"

// moduleOfLines is a module of many lines, as many as fit.
func moduleOfLines(count int, line func(i int) string) string {
	text := strings.Builder{}
	text.WriteString(smallest)
	for i := range count {
		next := line(i)
		if text.Len()+len(next) > opa.MaxModuleBytes-100 {
			break
		}
		text.WriteString(next)
	}
	return text.String()
}

func ordinary(i int) string {
	return fmt.Sprintf("allow if { input.pod.labels.a%d; input.pod.labels.b == \"%d\"; input.pod.node == \"n%d\" }\n", i, i, i)
}

// sized are modules by what makes them large. Each of them is accepted.
func sized() map[string]string {
	return map[string]string{
		"the smallest module":           smallest,
		"60 ordinary rules":             moduleOfLines(60, ordinary),
		"as many ordinary rules as fit": moduleOfLines(190, ordinary),
		"comprehensions": moduleOfLines(180, func(i int) string {
			return fmt.Sprintf("c%d := {p.name: [q.uid | some q in input.pods; q.node == p.node] | some p in input.pods}\n", i)
		}),
		"deep arrays": moduleOfLines(180, deepArray),
		"objects": moduleOfLines(180, func(i int) string {
			return fmt.Sprintf("x%d := {0:{}, 1:{}, 2:{}, 3:{}, 4:{}, 5:{}, 6:{}, 7:{}, 8:{}, 9:{}}\n", i)
		}),
		"rules in a deep document": moduleOfLines(180, func(i int) string {
			return fmt.Sprintf("x.a%d%s := %d\n", i, strings.Repeat(".b", 35), i)
		}),
		"comments":      moduleOfLines(1<<14, func(int) string { return "#\n" }),
		"a long string": "package rule\n\nallow if input.pod.name == \"" + strings.Repeat("x", 16000) + "\"\n",
		"functions": moduleOfLines(180, func(i int) string {
			return fmt.Sprintf("f%d(a, b, c, d, e, g, h, i) := [a, b, c, d, e, g, h, i]\n", i)
		}),
	}
}

func deepArray(i int) string {
	return fmt.Sprintf("x%d := %s1%s\n", i, strings.Repeat("[", 40), strings.Repeat("]", 40))
}

// sizeFactor is how far what a module counts may be from the heap that it takes.
const sizeFactor = 2

// TestModulesCountTheirHeap: the bytes that an owner is charged are those that the collector finds.
func TestModulesCountTheirHeap(t *testing.T) {
	for name, source := range sized() {
		t.Run(name, func(t *testing.T) {
			const owner, copies = "shop", 2
			e := newEngine(t, opa.Options{Memory: 1 << 30})
			inspect(t, e, "warm", smallest)
			before := heapAlloc()
			for i := range copies {
				inspect(t, e, owner, source+strings.Repeat("\n", i+1))
			}
			heap, counted := (heapAlloc()-before)/copies, e.MemoryOf(owner)/copies
			t.Logf("%5d bytes of text: %7d bytes of heap, counts %7d", len(source), heap, counted)
			if counted < heap*9/10 || counted > heap*sizeFactor {
				t.Errorf("a module that takes %d bytes of heap counts %d", heap, counted)
			}
			runtime.KeepAlive(e)
		})
	}
}

func inspect(t *testing.T, e *opa.Engine, owner, source string) {
	t.Helper()
	if _, err := e.Inspect(t.Context(), opa.Source{Owner: owner, Module: source}); err != nil {
		t.Fatal(err)
	}
}

func heapAlloc() int64 {
	for range 3 {
		runtime.GC()
	}
	stats := runtime.MemStats{}
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// in is a rule of a namespace with a module of its own.
func in(t *testing.T, namespace, source string) spec.Module {
	t.Helper()
	rule := appsv1alpha1.TransitionRule{Name: "mine", Rego: &appsv1alpha1.RegoRule{Module: source}}
	custom := &spec.Custom{Source: source, Entry: spec.EntryAllow, Parameters: []byte(`{}`)}
	module, err := spec.Rule(types.NamespacedName{Namespace: namespace, Name: "rule"}, rule, custom)
	if err != nil {
		t.Fatal(err)
	}
	return module
}

// large is a module of about 700 KB of heap, which no other number has.
func large(i int) string { return moduleOfLines(60, deepArray) + strings.Repeat("\n", i+1) }

// TestRulesOfAnyNumberTakeABoundedHeap: all rules are in use, and no more of them than fit are in
// memory. What does not fit is compiled again and decides the same.
func TestRulesOfAnyNumberTakeABoundedHeap(t *testing.T) {
	const limit, rules = 2 << 20, 8
	e := newEngine(t, opa.Options{Memory: limit, RoundBudget: time.Minute, CustomTimeout: time.Minute})
	inspect(t, e, "warm", smallest)
	before := heapAlloc()
	var programs []*opa.Program
	for i := range rules {
		program, err := e.Prepare(t.Context(), in(t, "shop", large(i)))
		if err != nil {
			t.Fatal(err)
		}
		programs = append(programs, program)
	}
	heap := heapAlloc() - before
	t.Logf("%d rules take %d KiB of heap, of which %d KiB are counted", rules, heap>>10, e.Memory()>>10)
	if e.Memory() > limit || heap > limit+rules*(opa.MaxModuleBytes+8<<10) {
		t.Errorf("%d rules take %d bytes of heap and count %d, want at most %d besides their texts", rules, heap, e.Memory(), limit)
	}
	asked := request(0, true)
	for _, program := range programs {
		asked.Stage = program.Stage()
		result, err := program.Evaluate(t.Context(), program.Stage(), rule.Environment{}, []rule.Request{asked})
		if err != nil || result.Verdicts[asked.Key()].Code != rule.CodeNotAllowed {
			t.Fatalf("a rule decides otherwise when it is compiled again: %v, %v", result, err)
		}
	}
	if got := e.Compilations(); got <= rules {
		t.Errorf("%d compilations: no module was compiled again", got)
	}
}

// TestCompilingAgainCountsAsCPUTime: a module that the engine has forgotten costs the namespace that asks
// what compiling it takes.
func TestCompilingAgainCountsAsCPUTime(t *testing.T) {
	used := map[int64]time.Duration{}
	for _, limit := range []int64{64 << 20, 1} {
		e := newEngine(t, opa.Options{Memory: limit, RoundBudget: time.Minute, CustomTimeout: time.Minute})
		program, err := e.Prepare(t.Context(), in(t, "shop", moduleOfLines(190, ordinary)))
		if err != nil {
			t.Fatal(err)
		}
		asked := request(0, true)
		asked.Stage = program.Stage()
		before := e.Compilations()
		result, err := program.Evaluate(t.Context(), program.Stage(), rule.Environment{}, []rule.Request{asked})
		if err != nil {
			t.Fatal(err)
		}
		if again := e.Compilations() > before; again != (limit == 1) {
			t.Fatalf("with %d bytes the module is compiled again: %t", limit, again)
		}
		used[limit] = result.CPUTime
	}
	if used[1] < 2*used[64<<20] {
		t.Errorf("an evaluation counts %s, one that compiles again %s", used[64<<20], used[1])
	}
}

// TestANamespaceKeepsItsModules: what another namespace compiles, in whatever number, costs this one
// no compilation.
func TestANamespaceKeepsItsModules(t *testing.T) {
	e := newEngine(t, opa.Options{Memory: 3 << 20, RoundBudget: time.Minute, CustomTimeout: time.Minute})
	quiet, err := e.Prepare(t.Context(), in(t, "quiet", large(0)))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		inspect(t, e, "greedy", large(i+1))
	}
	before := e.Compilations()
	asked := request(0, true)
	asked.Stage = quiet.Stage()
	if _, err := quiet.Evaluate(t.Context(), quiet.Stage(), rule.Environment{}, []rule.Request{asked}); err != nil {
		t.Fatal(err)
	}
	if got := e.Compilations(); got != before {
		t.Error("the module was compiled again")
	}
	if quiet, greedy := e.MemoryOf("quiet"), e.MemoryOf("greedy"); greedy < quiet {
		t.Errorf("the greedy namespace has %d bytes, less than the %d of the quiet one", greedy, quiet)
	}
}

// TestParametersCountTheirHeap: terms take many times the bytes of their JSON, and a rule that is not
// asked must not hold them.
func TestParametersCountTheirHeap(t *testing.T) {
	const limit = 4 << 20
	e := newEngine(t, opa.Options{Memory: limit})
	inspect(t, e, "warm", smallest)
	before := heapAlloc()
	var programs []*opa.Program
	for i := range 50 {
		module := in(t, "shop", smallest)
		module.Custom.Parameters = []byte(fmt.Sprintf(`{"n":%d,"list":[%s0]}`, i, strings.Repeat("1.5,", 8000)))
		program, err := e.Prepare(t.Context(), module)
		if err != nil {
			t.Fatal(err)
		}
		programs = append(programs, program)
	}
	texts := int64(50 * 33000)
	if heap := heapAlloc() - before; heap > limit+texts+1<<20 {
		t.Errorf("50 rules take %d bytes of heap, want at most %d besides their parameters", heap, limit)
	}
	runtime.KeepAlive(programs)
}

// TestPodsCountTheirHeap: labels and annotations are as many as a user likes.
func TestPodsCountTheirHeap(t *testing.T) {
	for name, labels := range map[string]int{"no labels": 0, "five labels": 5, "200 labels": 200, "5000 labels": 5000} {
		t.Run(name, func(t *testing.T) {
			pods := []*rule.PodFact{}
			for i := range 40 {
				pod := &rule.PodFact{UID: types.UID(fmt.Sprint("uid-", i)), Namespace: "shop", Name: fmt.Sprint("web-", i), Version: "1", Labels: map[string]string{}}
				for n := range labels {
					pod.Labels[fmt.Sprintf("example.com/label-%d-%d", i, n)] = fmt.Sprintf("value-%d-%d", i, n)
				}
				pods = append(pods, pod)
			}
			before := heapAlloc()
			terms := opa.PodTerms(newEngine(t, opa.Options{}), pods)
			heap, counted := heapAlloc()-before, int64(0)
			for _, pod := range pods {
				counted += opa.PodBytes(pod)
			}
			t.Logf("a pod takes %d bytes of heap, counts %d", heap/40, counted/40)
			if counted < heap*9/10 || counted > heap*sizeFactor {
				t.Errorf("pods that take %d bytes of heap count %d", heap, counted)
			}
			runtime.KeepAlive(terms)
		})
	}
}
