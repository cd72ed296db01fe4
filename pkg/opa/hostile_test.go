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
	// hostileTimeout is the default limit of a module for one pod.
	hostileTimeout = 100 * time.Millisecond

	// hostileSlack allows for a machine that runs other tests as well. It is far below the time
	// that each of the modules takes.
	hostileSlack = 10 * time.Second

	// busyTries is how often an evaluation is repeated that got no CPU time.
	busyTries = 20

	// hostileGrowth bounds the heap while a module is compiled and evaluated.
	hostileGrowth = 128 << 20
)

// hostile is a module of testdata/hostile. Its header describes the attack and the expected
// outcomes:
//
//	# outcome: compile <code of the first problem>
//	# outcome: withheld <code of the verdict>
//	# schema: <JSON schema of the parameters>
//
// Several outcomes are separated by a bar: a slow machine reaches the deadline before it reaches a
// bound.
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

// outcomeOf returns the outcome of a module as the header writes it. An evaluation that got no CPU
// time is repeated.
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
	pending := request(0, true)
	verdict := rule.Verdict{Code: rule.CodeNotReached}
	for range tries {
		start := time.Now()
		result, err := program.Evaluate(t.Context(), pending.Stage, fleet(1000), []rule.Request{pending})
		if err != nil {
			return "error " + err.Error()
		}
		if took := time.Since(start); took > hostileTimeout+hostileSlack {
			t.Errorf("an evaluation took %v", took)
		}
		if verdict = result.Verdicts[pending.Key()]; verdict.Code != rule.CodeNotReached {
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

// fleet returns the environment of a pod with n others.
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

// TestHostile checks that each hostile module is rejected, or withholds its pod in time.
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

// TestHostileAllAtOnceHeap checks that a built-in rule is evaluated, and memory stays bounded, while
// all of them run.
func TestHostileAllAtOnceHeap(t *testing.T) {
	with := newEngine(t, opa.Options{CustomTimeout: hostileTimeout})
	healthy, err := with.Prepare(t.Context(), compiled(t, budget("10%")))
	if err != nil {
		t.Fatal(err)
	}
	peak := watchHeap()
	attack := sync.WaitGroup{}
	for _, one := range hostiles(t) {
		attack.Go(func() {
			// Under this load a module may use up its time at an earlier step.
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
	pending := []rule.Request{request(0, true), request(1, true)}
	for attacked := true; attacked; answers++ {
		select {
		case <-over:
			attacked = false
		default:
		}
		start := time.Now()
		result, err := healthy.Evaluate(t.Context(), healthy.Stage(), fleet(100), pending)
		slowest = max(slowest, time.Since(start))
		if err != nil || result.Verdicts[pending[0].Key()].Outcome != rule.NeedsSlot || result.Capacity.Slots != 10 {
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

// TestHostileMillionRules checks that a module of a million rules is rejected by its size, before
// it is parsed: its rules have errors of syntax, which are not reported.
func TestHostileMillionRules(t *testing.T) {
	source := "package rule\n\n" + strings.Repeat("allow if if input.pod.ready\n", 1000000)
	problems := &opa.CompileError{}
	_, err := newEngine(t, opa.Options{}).Inspect(t.Context(), opa.Source{Module: source})
	if !errors.As(err, &problems) || len(problems.Problems) != 1 || !strings.Contains(problems.Problems[0].Message, "bytes") {
		t.Errorf("got error %v, want one about the size", err)
	}
}

// TestHostileSchemas checks that no schema makes the compiler open a connection, neither that of
// the parameters nor one in an annotation.
func TestHostileSchemas(t *testing.T) {
	calls := atomic.Int32{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
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
	if calls.Load() != 0 {
		t.Errorf("the server got %d requests", calls.Load())
	}
}

// watchHeap returns a function that stops watching and returns the largest growth of the heap.
//
// The garbage collector runs often meanwhile: by default the heap may double before it does, so
// that garbage would count, and more of it after tests with a large heap.
func watchHeap() (peak func() uint64) {
	percent := debug.SetGCPercent(20)
	// Caches of unreferenced engines are freed by the cleanups of the first collection.
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

// awaitNoRunaways waits until all runaways have ended.
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
