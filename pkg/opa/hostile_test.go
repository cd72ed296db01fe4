package opa_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/opa"
	"github.com/podops-dev/podops/pkg/rule"
	"github.com/podops-dev/podops/pkg/rule/spec"
)

const (
	// hostileTimeout is what a module has for one pod, as by default.
	hostileTimeout = 100 * time.Millisecond

	// hostileSlack is for a machine that runs other tests as well. It is far below what each of the
	// modules would take.
	hostileSlack = 10 * time.Second

	// busyTries is how often an evaluation is tried that the machine has no CPU time for.
	busyTries = 20

	// hostileGrowth bounds the heap while a module is compiled and evaluated.
	hostileGrowth = 128 << 20
)

// hostile is a module of testdata/hostile. Its header says what it tries, and what comes of that:
//
//	# outcome: compile <code of the first problem>
//	# outcome: withheld <code of the verdict>
//	# schema: <JSON schema of the parameters>
//
// There may be several outcomes, with a bar between them: a slow machine gets to the deadline before
// it gets to a bound.
type hostile struct {
	name, source string
	outcomes     []string
	schema       json.RawMessage
}

func hostiles(t *testing.T) []hostile {
	t.Helper()
	files, err := filepath.Glob("testdata/hostile/*.rego")
	if err != nil || len(files) < 25 {
		t.Fatalf("found %d files, error %v", len(files), err)
	}
	found := []hostile{}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		one := hostile{name: strings.TrimSuffix(filepath.Base(file), ".rego"), source: string(source)}
		for line := range strings.Lines(one.source) {
			if outcome, ok := strings.CutPrefix(line, "# outcome: "); ok {
				one.outcomes = strings.Split(strings.TrimSpace(outcome), " | ")
			}
			if schema, ok := strings.CutPrefix(line, "# schema: "); ok {
				one.schema = json.RawMessage(strings.TrimSpace(schema))
			}
		}
		found = append(found, one)
	}
	return found
}

// outcomeOf a module: how far it gets, in the words of its header. An evaluation that the machine has
// no CPU time for is tried again.
func outcomeOf(t *testing.T, with *opa.Engine, one hostile, tries int) string {
	t.Helper()
	found, err := with.Inspect(t.Context(), opa.Source{Module: one.source, ParametersSchema: one.schema})
	problems := &opa.CompileError{}
	switch {
	case errors.As(err, &problems):
		return "compile " + problems.Problems[0].Code
	case err != nil:
		return "error " + err.Error()
	}
	entry := appsv1alpha1.TransitionRule{Name: "mine", Rego: &appsv1alpha1.RegoRule{Module: one.source}}
	custom := spec.Custom{Source: one.source, Entry: found.Entry, ParametersSchema: one.schema}
	module, err := spec.Rule(types.NamespacedName{Namespace: "shop", Name: one.name}, entry, &custom)
	if err != nil {
		t.Fatal(err)
	}
	program, err := with.Prepare(t.Context(), module)
	if err != nil {
		t.Fatal(err)
	}
	asked := request(0, true)
	verdict := rule.Verdict{Code: rule.CodeNotReached}
	for range tries {
		start := time.Now()
		result, err := program.Evaluate(t.Context(), asked.Stage, fleet(1000), []rule.Request{asked})
		if err != nil {
			return "error " + err.Error()
		}
		if took := time.Since(start); took > hostileTimeout+hostileSlack {
			t.Errorf("an evaluation took %v", took)
		}
		if verdict = result.Verdicts[asked.Key()]; verdict.Code != rule.CodeNotReached {
			break
		}
	}
	if len(verdict.Message) > rule.MaxMessageBytes || len(verdict.Details) > rule.MaxMessageBytes {
		t.Errorf("a message of %d bytes and details of %d", len(verdict.Message), len(verdict.Details))
	}
	if verdict.Outcome != rule.Withheld {
		return "passed"
	}
	return "withheld " + string(verdict.Code)
}

// fleet is the surroundings of a pod with so many others.
func fleet(size int) rule.Environment {
	env := rule.Environment{
		Now:       time.Unix(1800000000, 0),
		Namespace: rule.Namespace{Name: "shop", Labels: map[string]string{"team": "a"}},
		Counts:    rule.Counts{Selected: size, Desired: size, Available: size},
	}
	for i := range size {
		pod := *request(i, true).Pod
		pod.Node, pod.Owner = fmt.Sprintf("node-%d", i%10), rule.Owner{Kind: "Deployment", Name: "web", UID: "1"}
		env.Pods = append(env.Pods, &pod)
	}
	for i := range 100 {
		env.Permits = append(env.Permits, rule.Permit{Pod: fmt.Sprintf("web-%d", i), At: env.Now})
	}
	return env
}

// Each hostile module is refused, or its pod is withheld in time.
func TestHostile(t *testing.T) {
	for _, one := range hostiles(t) {
		t.Run(one.name, func(t *testing.T) {
			with := newEngine(t, opa.Options{CustomTimeout: hostileTimeout})
			peak := watchHeap()
			start := time.Now()
			got := outcomeOf(t, with, one, busyTries)
			took := time.Since(start)
			if !slices.Contains(one.outcomes, got) {
				t.Errorf("outcome %q, want one of %q", got, one.outcomes)
			}
			if took > busyTries*11*hostileTimeout+hostileSlack {
				t.Errorf("took %v", took)
			}
			if grown := peak(); grown > hostileGrowth {
				t.Errorf("the heap grew by %d MiB", grown>>20)
			}
			awaitNoRunaways(t, with)
		})
	}
}

// With all of them applied at once, a built-in rule goes on answering, and memory stays bounded.
func TestHostileAllAtOnce(t *testing.T) {
	with := newEngine(t, opa.Options{CustomTimeout: hostileTimeout})
	healthy, err := with.Prepare(t.Context(), compiled(t, budget("10%")))
	if err != nil {
		t.Fatal(err)
	}
	peak := watchHeap()
	attack := sync.WaitGroup{}
	for _, one := range hostiles(t) {
		attack.Go(func() {
			// Under such a load a module may get less done before its time is over.
			got := outcomeOf(t, with, one, 1)
			late := got == "withheld Timeout" || got == "withheld NotReached"
			if !late && !slices.Contains(one.outcomes, got) || late && strings.HasPrefix(one.outcomes[0], "compile") {
				t.Errorf("%s: outcome %q, want one of %q", one.name, got, one.outcomes)
			}
		})
	}
	over := make(chan struct{})
	go func() {
		attack.Wait()
		close(over)
	}()
	slowest, answers := time.Duration(0), 0
	asked := []rule.Request{request(0, true), request(1, true)}
	for attacked := true; attacked; answers++ {
		select {
		case <-over:
			attacked = false
		default:
		}
		start := time.Now()
		result, err := healthy.Evaluate(t.Context(), healthy.Stage(), fleet(100), asked)
		slowest = max(slowest, time.Since(start))
		if err != nil || result.Verdicts[asked[0].Key()].Outcome != rule.NeedsSlot || result.Capacity.Slots != 10 {
			t.Fatalf("the healthy rule answered %+v, error %v", result, err)
		}
	}
	if answers < 10 || slowest > hostileSlack {
		t.Errorf("the healthy rule answered %d times, and took %v at most", answers, slowest)
	}
	if grown := peak(); grown > 2*hostileGrowth {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
	awaitNoRunaways(t, with)
}

// A module of a million rules is refused by its size, before anything looks at them.
func TestHostileMillionRules(t *testing.T) {
	source := "package rule\n\n" + strings.Repeat("allow if input.pod.ready\n", 1000000)
	start := time.Now()
	problems := &opa.CompileError{}
	if _, err := newEngine(t, opa.Options{}).Inspect(t.Context(), opa.Source{Module: source}); !errors.As(err, &problems) {
		t.Errorf("got error %v, want a compile error", err)
	}
	if took := time.Since(start); took > time.Second {
		t.Errorf("took %v", took)
	}
}

// A schema does not make the compiler reach for the network, neither as that of the parameters nor in
// an annotation.
func TestHostileSchemas(t *testing.T) {
	asked := atomic.Int32{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		fmt.Fprint(w, `{"type": "object"}`)
	}))
	defer server.Close()
	schema := fmt.Sprintf(`{"$ref": "%s/schema.json"}`, server.URL)
	with := newEngine(t, opa.Options{})
	if _, err := with.Inspect(t.Context(), opa.Source{Module: "package rule\n\nallow if input.parameters.x\n", ParametersSchema: json.RawMessage(schema)}); err == nil {
		t.Error("a remote schema of the parameters is no error")
	}
	source := "package rule\n\n# METADATA\n# schemas:\n# - input: " + schema + "\nallow if input.pod.ready\n"
	if _, err := with.Inspect(t.Context(), opa.Source{Module: source}); err != nil {
		t.Errorf("the annotation is not ignored: %v", err)
	}
	if asked.Load() != 0 {
		t.Errorf("the server was asked %d times", asked.Load())
	}
}

// watchHeap returns a function that stops watching, and says how far the heap grew at most.
//
// It has the collector run often meanwhile: by default the heap may double before it does,
// so that garbage counts, the more the larger the heap of the tests before is.
func watchHeap() (peak func() uint64) {
	percent := debug.SetGCPercent(20)
	// Caches of engines that are gone are freed by the cleanups of the first collection.
	runtime.GC()
	runtime.GC()
	before, most := heapInUse(), uint64(0)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticks := time.NewTicker(10 * time.Millisecond)
		defer ticks.Stop()
		for {
			most = max(most, heapInUse())
			select {
			case <-stop:
				return
			case <-ticks.C:
			}
		}
	}()
	return func() uint64 {
		close(stop)
		<-stopped
		debug.SetGCPercent(percent)
		return most - min(most, before)
	}
}

func heapInUse() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// awaitNoRunaways: what was left behind at its deadline ends by itself soon.
func awaitNoRunaways(t *testing.T, of *opa.Engine) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for of.Runaways() > 0 {
		if time.Now().After(deadline) {
			t.Fatalf("%d evaluations still run", of.Runaways())
		}
		time.Sleep(10 * time.Millisecond)
	}
}
