package opa_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/engine/opa"
)

const smallest = "package rule\n\nallow if input.pod.ready\n"

// moduleOfLines returns a module of many lines, as many as fit.
func moduleOfLines(count int, line func(i int) string) string {
	text := strings.Builder{}
	text.WriteString(smallest)
	for i := range count {
		next := line(i)
		if text.Len()+len(next) > spec.MaxModuleBytes-100 {
			break
		}
		text.WriteString(next)
	}
	return text.String()
}

func ordinary(i int) string {
	return fmt.Sprintf("allow if { input.pod.labels.a%d; input.pod.labels.b == \"%d\"; input.pod.node == \"n%d\" }\n", i, i, i)
}

func deepArray(i int) string {
	return fmt.Sprintf("x%d := %s1%s\n", i, strings.Repeat("[", 40), strings.Repeat("]", 40))
}

// sizeFactor is the largest allowed ratio between the bytes that pods are charged and their heap.
const sizeFactor = 2

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

// in returns a rule of a namespace with a module of its own.
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

// large returns a module of about 700 KB of heap that is unique to its number.
func large(i int) string { return moduleOfLines(60, deepArray) + strings.Repeat("\n", i+1) }

// TestRulesOfAnyNumberTakeABoundedHeap has more rules in use than fit into memory. The other ones
// are compiled again, and return the same verdicts.
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
	if e.Memory() > limit || heap > limit+rules*(spec.MaxModuleBytes+8<<10) {
		t.Errorf("%d rules take %d bytes of heap and count %d, want at most %d besides their texts", rules, heap, e.Memory(), limit)
	}
	pending := request(0, true)
	for _, program := range programs {
		pending.Stage = program.Stage()
		result, err := program.Evaluate(t.Context(), program.Stage(), rule.Environment{}, []rule.Request{pending})
		if err != nil || result.Verdicts[pending.Key()].Code != rule.CodeNotAllowed {
			t.Fatalf("a rule decides otherwise when it is compiled again: %v, %v", result, err)
		}
	}
	if got := e.Compilations(); got <= rules {
		t.Errorf("%d compilations: no module was compiled again", got)
	}
}

// TestCompilingAgainCountsAsCPUTime checks that an evicted module is compiled at the expense of the
// namespace that evaluates it.
func TestCompilingAgainCountsAsCPUTime(t *testing.T) {
	used := map[int64]time.Duration{}
	for _, limit := range []int64{64 << 20, 1} {
		e := newEngine(t, opa.Options{Memory: limit, RoundBudget: time.Minute, CustomTimeout: time.Minute})
		program, err := e.Prepare(t.Context(), in(t, "shop", moduleOfLines(190, ordinary)))
		if err != nil {
			t.Fatal(err)
		}
		pending := request(0, true)
		pending.Stage = program.Stage()
		before := e.Compilations()
		result, err := program.Evaluate(t.Context(), program.Stage(), rule.Environment{}, []rule.Request{pending})
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

// TestANamespaceKeepsItsModules checks that the modules of another namespace, however many, do not
// evict those of this one.
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
	pending := request(0, true)
	pending.Stage = quiet.Stage()
	if _, err := quiet.Evaluate(t.Context(), quiet.Stage(), rule.Environment{}, []rule.Request{pending}); err != nil {
		t.Fatal(err)
	}
	if got := e.Compilations(); got != before {
		t.Error("the module was compiled again")
	}
	if quiet, greedy := e.MemoryUsedBy("quiet"), e.MemoryUsedBy("greedy"); greedy < quiet {
		t.Errorf("the greedy namespace has %d bytes, less than the %d of the quiet one", greedy, quiet)
	}
}

// TestParametersCountTheirHeap checks the bytes of terms, which take many times the bytes of
// their JSON. A rule that is not evaluated must not hold them.
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

// TestDocumentsCountTheirHeap compares the bytes that a namespace is charged for the terms of a document with their heap.
func TestDocumentsCountTheirHeap(t *testing.T) {
	for name, part := range map[string]string{
		"numbers": `0`, "texts": `"web"`, "long texts": `"` + strings.Repeat("x", 500) + `"`, "empty arrays": `[]`, "empty objects": `{}`,
		"objects": `{"a":1}`, "nested arrays": strings.Repeat("[", 50) + strings.Repeat("]", 50), "selectors": `{"key":"app","operator":"In","values":["a","b"]}`,
	} {
		t.Run(name, func(t *testing.T) {
			const owner, copies = "shop", 10
			e := newEngine(t, opa.Options{Memory: 1 << 30})
			inspect(t, e, "warm", smallest)
			module := in(t, owner, smallest)
			if _, err := e.Prepare(t.Context(), module); err != nil {
				t.Fatal(err)
			}
			var documents [][]byte
			for i := range copies {
				documents = append(documents, fmt.Appendf(nil, `{"n":%d,"list":[%s%s]}`, i, strings.Repeat(part+",", 300), part))
			}
			before, charged := heapAlloc(), e.MemoryUsedBy(owner)
			for _, document := range documents {
				module.Custom.Parameters = document
				if _, err := e.Prepare(t.Context(), module); err != nil {
					t.Fatal(err)
				}
			}
			heap, counted := heapAlloc()-before, e.MemoryUsedBy(owner)-charged
			t.Logf("%d bytes of JSON: %d bytes of heap, counts %d", len(documents[0]), heap/copies, counted/copies)
			if counted < heap*9/10 || counted > 4*heap {
				t.Errorf("documents that take %d bytes of heap count %d", heap, counted)
			}
			runtime.KeepAlive(e)
		})
	}
}

// TestPodsCountTheirHeap checks the bytes of pods with many labels, and of pods with details.
func TestPodsCountTheirHeap(t *testing.T) {
	for name, tc := range map[string]struct{ labels, containers int }{
		"no labels": {}, "five labels": {labels: 5}, "200 labels": {labels: 200}, "5000 labels": {labels: 5000},
		"one container": {containers: 1}, "five containers": {containers: 5}, "100 containers": {containers: 100},
	} {
		t.Run(name, func(t *testing.T) {
			pods := []*rule.PodFact{}
			for i := range 40 {
				pod := &rule.PodFact{UID: types.UID(fmt.Sprint("uid-", i)), Namespace: "shop", Name: fmt.Sprint("web-", i), Version: "1", Labels: map[string]string{}}
				for n := range tc.containers {
					quantities := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m"), corev1.ResourceMemory: resource.MustParse("64Mi")}
					pod.Details.Containers = append(pod.Details.Containers, corev1.Container{
						Name: fmt.Sprintf("container-%d-%d", i, n), Image: fmt.Sprintf("registry.example.com/shop/web-%d-%d:v1", i, n),
						Resources: corev1.ResourceRequirements{Requests: quantities, Limits: quantities},
					})
					pod.Details.Conditions = append(pod.Details.Conditions, corev1.PodCondition{
						Type: corev1.PodConditionType(fmt.Sprintf("example.com/condition-%d-%d", i, n)), Status: corev1.ConditionTrue, Reason: "Ready",
						LastTransitionTime: metav1.Unix(1700000000, 0),
					})
				}
				for n := range tc.labels {
					pod.Labels[fmt.Sprintf("example.com/label-%d-%d", i, n)] = fmt.Sprintf("value-%d-%d", i, n)
				}
				pods = append(pods, pod)
			}
			before := heapAlloc()
			terms := opa.PodTerms(newEngine(t, opa.Options{}), pods, tc.containers > 0)
			heap, counted := heapAlloc()-before, int64(0)
			for _, pod := range pods {
				counted += opa.PodBytes(pod, tc.containers > 0)
			}
			t.Logf("a pod takes %d bytes of heap, counts %d", heap/40, counted/40)
			if counted < heap*9/10 || counted > heap*sizeFactor {
				t.Errorf("pods that take %d bytes of heap count %d", heap, counted)
			}
			runtime.KeepAlive(terms)
		})
	}
}
