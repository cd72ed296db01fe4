package sandbox

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/engine/opa"
)

// hostile is a module of testdata/hostile. Its header describes the attack and the expected
// outcomes:
//
//	# outcome: compile <code of the first problem>
//	# outcome: withheld <code of the verdict>
//	# schema: <JSON schema of the parameters>
//
// Several outcomes are separated by a bar: a slow machine reaches the limit of CPU time before it reaches another
// limit.
type hostile struct {
	name, source string
	outcomes     []string
	schema       json.RawMessage
}

func hostiles(t *testing.T) []hostile {
	t.Helper()
	files, err := filepath.Glob("../testdata/hostile/*.rego")
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

// busyTries is how often a module is compiled while the machine is too busy.
const busyTries = 20

// outcome returns the outcome of a module as the header writes it. What did not get the CPU is repeated.
func (h hostile) outcome(t *testing.T, with *opa.Engine, env rule.Environment, waiting []rule.Request) string {
	t.Helper()
	found, err := opa.Inspection{}, opa.ErrNotReached
	for tries := 0; errors.Is(err, opa.ErrNotReached) && tries < busyTries; tries++ {
		found, err = with.Inspect(t.Context(), opa.Source{Owner: h.name, Module: h.source, ParametersSchema: h.schema})
	}
	problems := &opa.CompileError{}
	switch {
	case errors.As(err, &problems):
		return "compile " + problems.Problems[0].Code
	case err != nil:
		return "error " + err.Error()
	}
	entry := appsv1alpha1.TransitionRule{Name: "mine", Rego: &appsv1alpha1.RegoRule{Module: h.source}}
	custom := spec.Custom{Source: h.source, Entry: found.Entry, ParametersSchema: h.schema, Parameters: json.RawMessage(`{}`)}
	module, err := spec.Rule(types.NamespacedName{Namespace: h.name, Name: "rules"}, entry, &custom)
	if err != nil {
		t.Error(err)
		return "error"
	}
	program, err := with.Prepare(t.Context(), module)
	if err != nil {
		return "error " + err.Error()
	}
	verdict := evaluate(t, program, env, waiting).Verdicts[waiting[0].Key()]
	if len(verdict.Message) > rule.MaxMessageBytes || len(verdict.Details) > rule.MaxMessageBytes {
		t.Errorf("%s: a message of %d bytes and details of %d", h.name, len(verdict.Message), len(verdict.Details))
	}
	if verdict.Outcome != rule.Withheld {
		return "passed"
	}
	return "withheld " + string(verdict.Code)
}

// TestHostileCorpus evaluates all hostile modules at once, each in a namespace of its own, and checks that each is rejected
// or withholds its pod, that this process continues to answer, and that its heap does not grow.
func TestHostileCorpus(t *testing.T) {
	engine := engineWith(t, opa.Options{RoundBudget: time.Minute}, New(Options{Timeout: patience}))
	entry := appsv1alpha1.TransitionRule{
		Name: "mine", LabelCheck: &appsv1alpha1.LabelCheck{Requires: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}
	compiled, err := spec.Rule(types.NamespacedName{Namespace: "quiet", Name: "rules"}, entry, nil)
	if err != nil {
		t.Fatal(err)
	}
	healthy, err := engine.Prepare(t.Context(), compiled)
	if err != nil {
		t.Fatal(err)
	}
	all := pods(1000)
	before, env := heapInUse(), environment(all)
	attack, over := sync.WaitGroup{}, make(chan struct{})
	for _, one := range hostiles(t) {
		attack.Go(func() {
			waiting := requests(all[1:2]) // it is not ready
			if got := one.outcome(t, engine, env, waiting); !slices.Contains(one.outcomes, got) {
				t.Errorf("%s: outcome %q, want one of %q", one.name, got, one.outcomes)
			}
		})
	}
	go func() {
		attack.Wait()
		close(over)
	}()
	most := before
	for attacked := true; attacked; {
		select {
		case <-over:
			attacked = false
		case <-time.After(10 * time.Millisecond):
		}
		result, err := healthy.Evaluate(t.Context(), healthy.Stage(), env, requests(all[:2]))
		if err != nil || len(result.Verdicts) != 2 {
			t.Fatalf("the healthy rule answered %+v, error %v", result, err)
		}
		most = max(most, heapInUse())
	}
	if grown := most - before; grown > 64<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
}

func heapInUse() uint64 {
	stats := runtime.MemStats{}
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
