package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	appsv1alpha1 "github.com/podops-dev/podops/apis/apps/v1alpha1"
	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/core/rule/spec"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/test/await"
)

// limitForTests is far above the need of an ordinary module on a busy machine.
const limitForTests = 5 * time.Second

// Modules that no check of the text finds.
const (
	// nestedEquality compares values that hold the same arrays many times over. Go's stack grows until the
	// process ends; OPA does not look whether it was cancelled.
	nestedEquality = `package rule
xs := numbers.range(1, 2000)
ys := [i | some i in xs]
a1 := [xs | some i in xs]
b1 := [ys | some i in xs]
cs := [a1 | some i in xs]
ds := [b1 | some i in xs]
allow if cs == ds
`

	// manyPaths allocates gigabytes in one call of a builtin.
	manyPaths = `package rule
path := concat("/", ["a" | some i in numbers.range(1, 9999)])
allow if json.remove({"b": 1}, [path | some i in numbers.range(1, 5000)]) == {}
`

	endless = `package rule
allow if {
	some i in numbers.range(1, 9000)
	some j in numbers.range(1, 9000)
	i * j < 0
}
`
)

// engineWith returns an engine that evaluates modules in the workers of a sandbox, or in this process if it is nil.
func engineWith(t testing.TB, options opa.Options, workers *Sandbox) *opa.Engine {
	t.Helper()
	if workers != nil {
		options.Workers = workers
	}
	engine, err := opa.New(options)
	if err != nil {
		t.Fatal(err)
	}
	return engine
}

// programIn prepares a rule of a namespace with a module.
func programIn(t testing.TB, engine *opa.Engine, namespace, module string, parameters string) *opa.Program {
	t.Helper()
	inspected, err := engine.Inspect(t.Context(), opa.Source{Owner: namespace, Module: module})
	if err != nil {
		t.Fatal(err)
	}
	custom := &spec.Custom{Source: module, Entry: inspected.Entry, Parameters: json.RawMessage(parameters)}
	entry := appsv1alpha1.TransitionRule{Name: "mine", Rego: &appsv1alpha1.RegoRule{Module: module}}
	compiled, err := spec.Rule(types.NamespacedName{Namespace: namespace, Name: "rules"}, entry, custom)
	if err != nil {
		t.Fatal(err)
	}
	program, err := engine.Prepare(t.Context(), compiled)
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// pods returns pods with a value in each field.
func pods(n int) []*rule.PodFact {
	var all []*rule.PodFact
	for i := range n {
		all = append(all, &rule.PodFact{
			UID: types.UID(fmt.Sprint("uid-", i)), Version: fmt.Sprint(i), Namespace: "shop", Name: fmt.Sprint("web-", i),
			Labels:      map[string]string{"app": "web", "zone": fmt.Sprint("z", i%3)},
			Annotations: map[string]string{"note": "a"}, Owner: rule.Owner{Kind: "Deployment", Name: "web", UID: "1"},
			Revision: rule.Revision{Current: "r1", State: rule.RevisionNewest}, Node: fmt.Sprint("node-", i%5),
			Created: time.Unix(1700000000, 5), Ready: i%2 == 0, AvailableSince: time.Unix(1700000100, 0),
			Permitted: i%4 == 0, SkipRules: []string{"other"}, Available: i%2 == 0,
		})
	}
	return all
}

// requests returns a request for each pod.
func requests(all []*rule.PodFact) []rule.Request {
	var made []rule.Request
	for _, pod := range all {
		made = append(made, rule.Request{
			Pod: pod, Stage: appsv1alpha1.StagePreCheck, ID: "1", Type: "restart", Cause: rule.CauseRollout, Since: time.Unix(1700000200, 0),
		})
	}
	return made
}

func environment(all []*rule.PodFact) rule.Environment {
	return rule.Environment{
		Now: time.Unix(1700000300, 7), Namespace: rule.Namespace{Name: "shop", Labels: map[string]string{"team": "a"}},
		Counts: rule.Counts{Selected: 4, Desired: 5, Available: 3, Reserved: 1},
		Pods:   all, Committed: map[types.UID]bool{"uid-1": true},
		Permits:   []rule.Permit{{Pod: "web-9", At: time.Unix(1700000250, 0)}},
		Workloads: map[types.UID]rule.Workload{"1": {Desired: 5, Revision: "r1", Paused: true}},
		Nodes:     map[string]*rule.Node{"node-1": {Labels: map[string]string{"a": "b"}, Unschedulable: true, Conditions: map[string]string{"Ready": "True"}}},
	}
}

// evaluate evaluates a rule for requests, until all of them are reached.
func evaluate(t testing.TB, program *opa.Program, env rule.Environment, waiting []rule.Request) rule.Result {
	t.Helper()
	var result rule.Result
	for range 50 {
		given, err := program.Evaluate(t.Context(), program.Stage(), env, waiting)
		if err != nil {
			t.Fatal(err)
		}
		all := given.Verdicts
		for key, verdict := range result.Verdicts {
			if verdict.Code != rule.CodeNotReached {
				all[key] = verdict
			}
		}
		result = given
		left := false
		for _, verdict := range all {
			left = left || verdict.Code == rule.CodeNotReached
		}
		if !left {
			return result
		}
	}
	t.Fatalf("requests are not reached: %+v", result)
	return result
}

// TestWorkersDecideLikeThisProcess evaluates modules here and in a worker.
func TestWorkersDecideLikeThisProcess(t *testing.T) {
	all := pods(7)
	here, there := engineWith(t, opa.Options{CustomTimeout: limitForTests}, nil), New(Options{Timeout: patience})
	in := engineWith(t, opa.Options{CustomTimeout: limitForTests}, there)
	for name, module := range map[string]string{
		"a condition of the pod": "package rule\n\nallow if input.pod.ready\n",
		"a reason":               "package rule\n\nallow if input.pod.ready\n\nreason := sprintf(\"%v is not ready\", [input.pod.name])\n",
		"a missing reason":       "package rule\n\nallow if input.pod.ready\n\nreason := input.pod.labels.none\n",
		"denials":                "package rule\n\ndeny contains {\"message\": \"no\", \"details\": {\"pod\": input.pod.name}, \"retry_after_seconds\": 7} if not input.pod.ready\n",
		"all of the environment": "package rule\n\ndeny contains {\"message\": \"all\", \"details\": {\"c\": input.counts, \"n\": input.namespace, \"p\": input.permits, \"t\": input.now}}\n",
		"other pods":             "package rule\n\ndeny contains {\"message\": concat(\",\", [sprintf(\"%v:%v:%v\", [p.name, p.available, p.permitted]) | some p in input.pods])}\n",
		"all of the pod":         "package rule\n\ndeny contains {\"message\": sprintf(\"%v\", [object.remove(input.pod, {\"labels\"})])}\n",
		"the operation":          "package rule\n\ndeny contains {\"message\": sprintf(\"%v\", [input.operation])}\n",
		"parameters":             "package rule\n\nallow if input.parameters.zone == input.pod.labels.zone\n",
		"with":                   "package rule\n\nready if input.pod.ready\n\nallow if {\n\tready with startswith as endswith\n\tnot ready with data.rule.ready as false\n}\n",
		"an error":               "package rule\n\nallow if to_number(input.pod.name) > 1\n",
		"a conflict":             "package rule\n\nallow := x if some x in [true, false]\n",
		"another type":           "package rule\n\nallow := input.parameters.zone\n",
	} {
		t.Run(name, func(t *testing.T) {
			const parameters = `{"zone": "z1"}`
			want := evaluate(t, programIn(t, here, "shop", module, parameters), environment(all), requests(all))
			got := evaluate(t, programIn(t, in, "shop", module, parameters), environment(all), requests(all))
			if diff := cmp.Diff(want.Verdicts, got.Verdicts); diff != "" {
				t.Errorf("verdicts (-here +in a worker):\n%s", diff)
			}
			if got.CPUTime <= 0 {
				t.Errorf("the worker used %v of CPU time", got.CPUTime)
			}
		})
	}
	if in.Compilations() != 0 {
		t.Errorf("this process compiled %d modules", in.Compilations())
	}
}

// TestBatchesAreCodedWhole checks that a worker reads every field of a batch that a module can read.
func TestBatchesAreCodedWhole(t *testing.T) {
	want := opa.Batch{}
	fill(reflect.ValueOf(&want).Elem(), 1)
	writing := &coder{known: &knownPods{}}
	writing.batch(&want)
	got, reading := opa.Batch{}, &coder{reads: true, data: writing.data, known: &knownPods{}}
	if reading.batch(&got); reading.end() != nil {
		t.Fatal(reading.end())
	}
	unread := []cmp.Option{
		cmpopts.IgnoreFields(opa.Batch{}, "Limit"), // the parent stops the worker
		cmpopts.IgnoreFields(rule.Request{}, "Evicts", "Requested", "Refused", "Attempt", "Task", "Approval"),
		cmpopts.IgnoreFields(rule.PodFact{}, "ResourceVersion", "BreakGlass"),
		cmp.Comparer(time.Time.Equal),
	}
	if diff := cmp.Diff(want, got, unread...); diff != "" {
		t.Errorf("a batch (-sent +received):\n%s", diff)
	}
	for cut := range writing.data {
		reading := &coder{reads: true, data: writing.data[:cut], known: &knownPods{}}
		if reading.batch(&opa.Batch{}); reading.end() == nil {
			t.Fatalf("%d of %d bytes are a batch", cut, len(writing.data))
		}
	}
}

// TestAnswersAreBounded reads the answers of a worker over which a module has power.
func TestAnswersAreBounded(t *testing.T) {
	long := strings.Repeat("\x1b[2J", 1000)
	sent := opa.Answer{
		Verdict: rule.Verdict{Outcome: rule.NeedsSlot, Code: "Forged", Would: "Forged", Message: long, Details: long, RetryAfter: 1 << 60},
		Output:  json.RawMessage(`{"passed"`),
		Err:     &opa.ModuleError{Code: "Forged", Message: long, Text: long},
	}
	writing := &coder{data: []byte{messageAnswer}}
	writing.answer(&sent)
	received := answers{ready: true}
	if done, err := received.take(writing.data, 1); done || err != nil {
		t.Fatal(done, err)
	}
	got := received.given[0]
	if want := (rule.Verdict{
		Code: rule.CodeUndefined, Would: rule.CodeUndefined, Message: got.Verdict.Message, Details: got.Verdict.Details, RetryAfter: opa.MaxRetryAfter,
	}); got.Verdict != want {
		t.Errorf("got %+v, want %+v", got.Verdict, want)
	}
	reported := &opa.ModuleError{}
	if !errors.As(got.Err, &reported) || reported.Code != rule.CodeEvaluationFailed {
		t.Errorf("got error %v, want one with the code %s", got.Err, rule.CodeEvaluationFailed)
	}
	for name, part := range map[string]string{"message": got.Verdict.Message, "details": got.Verdict.Details, "message of the error": reported.Message} {
		if len(part) > rule.MaxMessageBytes || name != "details" && strings.Contains(part, "\x1b") {
			t.Errorf("%s: got %q", name, part)
		}
	}
	if got.Output != nil || got.OutputErr == nil {
		t.Errorf("got the output %s and error %v, want an error", got.Output, got.OutputErr)
	}
	for name, message := range map[string][]byte{
		"nothing": {}, "another kind": {99}, "ready again": {messageReady}, "a part of an answer": writing.data[:5], "another answer": writing.data,
	} {
		if _, err := received.take(message, 1); err == nil {
			t.Errorf("%s is read", name)
		}
	}
}

// TestKnownPodsAreSentByVersion checks that a worker has the pods of each batch while pods change, come and go, whether or
// not it has kept them.
func TestKnownPodsAreSentByVersion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sent, kept := knownPods{}, knownPods{}
		for range rapid.IntRange(1, 8).Draw(t, "batches") {
			want := opa.Batch{}
			for _, pod := range pods(rapid.IntRange(0, 6).Draw(t, "pods")) {
				pod.Version = rapid.SampledFrom([]string{"", "1", "2"}).Draw(t, "version")
				pod.Node, pod.Details.Version = pod.Version, pod.Version
				want.Environment.Pods = append(want.Environment.Pods, pod)
			}
			want.Details = rapid.Bool().Draw(t, "details")
			if !want.Details {
				for _, pod := range want.Environment.Pods {
					pod.Details = rule.PodDetails{}
				}
			}
			want.Requests = requests(want.Environment.Pods)
			if rapid.Bool().Draw(t, "full") {
				sent.bytes += maxKnownBytes + 1
				kept.bytes += maxKnownBytes + 1
			}
			writing := &coder{known: &sent}
			writing.batch(&want)
			got, reading := opa.Batch{}, &coder{reads: true, data: writing.data, known: &kept}
			if reading.batch(&got); reading.end() != nil {
				t.Fatal(reading.end())
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("a batch (-sent +received):\n%s", diff)
			}
			if sent.bytes != kept.bytes || len(sent.pods) != len(kept.pods) {
				t.Fatalf("the parent knows %d pods with %d bytes, the worker %d with %d", len(sent.pods), sent.bytes, len(kept.pods), kept.bytes)
			}
		}
	})
}

// fill sets every field of a value; of containers and conditions the fields that rules read.
func fill(value reflect.Value, n int64) {
	switch value.Addr().Interface().(type) {
	case *time.Time:
		value.Set(reflect.ValueOf(time.Unix(n, n)))
		return
	case *corev1.Container:
		quantities := corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(n, resource.DecimalSI), "example.com/gpu": resource.MustParse("1Gi")}
		value.Set(reflect.ValueOf(corev1.Container{
			Name: fmt.Sprint("container-", n), Image: "web:v1", Resources: corev1.ResourceRequirements{Requests: quantities, Limits: quantities},
		}))
		return
	case *corev1.PodCondition:
		value.Set(reflect.ValueOf(corev1.PodCondition{
			Type: corev1.PodReady, Status: corev1.ConditionTrue, Reason: fmt.Sprint("reason ", n), LastTransitionTime: metav1.Unix(n, 0),
		}))
		return
	}
	switch value.Kind() {
	case reflect.Struct:
		for i := range value.NumField() {
			fill(value.Field(i), n+int64(i))
		}
	case reflect.Pointer:
		value.Set(reflect.New(value.Type().Elem()))
		fill(value.Elem(), n)
	case reflect.Slice:
		value.Set(reflect.MakeSlice(value.Type(), 2, 2))
		fill(value.Index(0), n)
		fill(value.Index(1), n+1)
	case reflect.Map:
		key, element := reflect.New(value.Type().Key()).Elem(), reflect.New(value.Type().Elem()).Elem()
		fill(key, n)
		fill(element, n+1)
		value.Set(reflect.MakeMap(value.Type()))
		value.SetMapIndex(key, element)
	case reflect.String:
		value.SetString(fmt.Sprint("text ", n))
	case reflect.Bool:
		value.SetBool(true)
	case reflect.Uint8:
		value.SetUint(uint64(n) % 250) //nolint:gosec // small
	default:
		value.SetInt(n)
	}
}

// TestHostileModules checks that a module which uses up its worker gets a timeout, that another namespace is
// evaluated at once, and an honest rule of the same namespace too.
func TestHostileModules(t *testing.T) {
	for name, tc := range map[string]struct {
		module string
		limit  time.Duration
	}{
		"nested equality ends at the limit of CPU time": {module: nestedEquality, limit: 100 * time.Millisecond},
		"many paths end at the limit of CPU time":       {module: manyPaths, limit: 100 * time.Millisecond},
		"a loop ends at the limit of CPU time":          {module: endless, limit: 100 * time.Millisecond},
		"nested equality ends at the limit of stack":    {module: nestedEquality, limit: time.Minute},
		"many paths end at the limit of memory":         {module: manyPaths, limit: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			sandbox := New(Options{Timeout: patience})
			engine := engineWith(t, opa.Options{CustomTimeout: tc.limit, RoundBudget: time.Hour}, sandbox)
			hostile, waiting := programIn(t, engine, "hostile", tc.module, `{}`), requests(pods(3))
			first, result := waiting[0].Key(), rule.Result{}
			for tries := 0; tries == 0 || result.Verdicts[first].Code == rule.CodeNotReached && tries < busyTries; tries++ {
				var err error
				if result, err = hostile.Evaluate(t.Context(), hostile.Stage(), rule.Environment{}, waiting); err != nil {
					t.Fatal(err)
				}
			}
			if got := result.Verdicts[first]; got.Code != rule.CodeTimeout || got.Message == "" {
				t.Errorf("got %+v, want a timeout", got)
			}
			for _, request := range waiting[1:] {
				if got := result.Verdicts[request.Key()]; got.Code != rule.CodeNotReached {
					t.Errorf("got %+v after the timeout, want it not reached", got)
				}
			}
			for _, namespace := range []string{"quiet", "hostile"} {
				honest := programIn(t, engine, namespace, fine, `{}`)
				if got := evaluate(t, honest, rule.Environment{}, waiting[:1]).Verdicts[waiting[0].Key()]; got.Outcome != rule.Passed {
					t.Errorf("namespace %s: got %+v, want it passed", namespace, got)
				}
			}
			if idle := len(sandbox.workers.idle); idle != 1 {
				t.Errorf("%d workers are kept, want 1: the hostile namespace shares none", idle)
			}
		})
	}
}

// TestFailuresOfTheMachine checks that a failure which no module causes is no verdict on it.
func TestFailuresOfTheMachine(t *testing.T) {
	missing := func() ([]string, error) { return []string{"/no/such/file"}, nil }
	for name, tc := range map[string]struct {
		command func() ([]string, error)
		want    string
	}{
		"no worker can be started":            {command: missing, want: "no such file"},
		"a worker is killed":                  {command: misbehaving("is killed"), want: "killed from outside"},
		"a worker has too little of the CPUs": {command: misbehaving("sleeps"), want: "too busy"},
		"a worker fails as it starts":         {command: misbehaving("writes nothing"), want: "failed before"},
	} {
		t.Run(name, func(t *testing.T) {
			sandbox := New(Options{Timeout: patience})
			batch := opa.Batch{Namespace: "shop", Requests: requests(pods(1)), Limit: 10 * time.Millisecond}
			sandbox.command = tc.command
			given, _, err := sandbox.Evaluate(t.Context(), batch)
			if len(given) > 0 || !errors.Is(err, opa.ErrNotReached) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %+v and error %v, want one that wraps ErrNotReached with %q", given, err, tc.want)
			}
			if sandbox.workers.isSuspect("shop", time.Now()) {
				t.Error("the namespace is suspected")
			}
			sandbox.command = ownBinary
			program := programIn(t, engineWith(t, opa.Options{CustomTimeout: limitForTests}, sandbox), "shop", fine, `{}`)
			if got := evaluate(t, program, rule.Environment{}, batch.Requests).Verdicts[batch.Requests[0].Key()]; got.Outcome != rule.Passed {
				t.Errorf("got %+v afterwards, want it passed", got)
			}
		})
	}
}

// TestAnIdleWorkerIsReplaced has a worker that is killed while it has no work.
func TestAnIdleWorkerIsReplaced(t *testing.T) {
	sandbox := New(Options{Timeout: patience})
	program := programIn(t, engineWith(t, opa.Options{CustomTimeout: limitForTests}, sandbox), "shop", fine, `{}`)
	waiting := requests(pods(1))
	evaluate(t, program, rule.Environment{}, waiting)
	idle := sandbox.workers.idle[0]
	if err := kill(idle.command.Process); err != nil {
		t.Fatal(err)
	}
	await.Receive(t, "it ends", idle.ended)
	if got := evaluate(t, program, rule.Environment{}, waiting).Verdicts[waiting[0].Key()]; got.Outcome != rule.Passed {
		t.Errorf("got %+v, want it passed", got)
	}
}

// TestWorkersEnd checks that an idle worker ends, and that a worker ends with its parent even while a module
// computes.
func TestWorkersEnd(t *testing.T) {
	sandbox := New(Options{Timeout: patience, Idle: time.Millisecond})
	program := programIn(t, engineWith(t, opa.Options{CustomTimeout: limitForTests}, sandbox), "shop", fine, `{}`)
	evaluate(t, program, rule.Environment{}, requests(pods(1)))
	await.Until(t, "no worker is idle", func() bool {
		sandbox.workers.mu.Lock()
		defer sandbox.workers.mu.Unlock()
		return len(sandbox.workers.idle) == 0
	})

	line, err := ownBinary()
	if err != nil {
		t.Fatal(err)
	}
	w, err := startWorker(line)
	if err != nil {
		t.Fatal(err)
	}
	batch := opa.Batch{Source: opa.Source{Module: nestedEquality}, ID: "a", Requests: requests(pods(1))}
	if err := w.send(batch, time.Minute); err != nil {
		t.Fatal(err)
	}
	if message, err := w.receive(allowance{cpu: time.Minute, latest: time.Now().Add(patience)}); err != nil || message[0] != messageReady {
		t.Fatalf("got %v and error %v, want that the module is evaluated", message, err)
	}
	if err := w.in.Close(); err != nil {
		t.Fatal(err)
	}
	await.Receive(t, "the worker ends", w.ended)
	if code := w.command.ProcessState.ExitCode(); code != 0 {
		t.Errorf("it exits with %d: %s", code, w.stderr.firstLine())
	}
	w.end()
}

// TestWorkerIsLimited reads the limits of a worker.
func TestWorkerIsLimited(t *testing.T) {
	sandbox := New(Options{Timeout: patience})
	program := programIn(t, engineWith(t, opa.Options{CustomTimeout: limitForTests}, sandbox), "shop", fine, `{}`)
	evaluate(t, program, rule.Environment{}, requests(pods(1)))
	pid := sandbox.workers.idle[0].command.Process.Pid
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"Max open files": 0, "Max file size": 0, "Max core file size": 0} {
		_, rest, _ := strings.Cut(string(limits), name)
		if got := strings.Fields(rest)[1]; got != fmt.Sprint(want) {
			t.Errorf("%s is %s, want %d", name, got, want)
		}
	}
	if directory, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); err != nil || directory != "/" {
		t.Errorf("its directory is %q, error %v", directory, err)
	}
	if environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); err != nil || string(environment) != "TZ=UTC\x00" {
		t.Errorf("its environment is %q, error %v", environment, err)
	}
	// A binary with cgo, as with the race detector, limits some of its threads.
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	limited := slices.DeleteFunc(threads, func(thread string) bool {
		status, err := os.ReadFile(thread)
		return err != nil || !strings.Contains(string(status), "NoNewPrivs:\t1")
	})
	if len(limited) == 0 {
		t.Error("no thread has given up new privileges")
	}
}

// TestCancelledBatch checks that the end of a caller ends the evaluation at once, without a timeout of the module.
func TestCancelledBatch(t *testing.T) {
	sandbox := New(Options{Timeout: patience})
	engine := engineWith(t, opa.Options{CustomTimeout: time.Hour, RoundBudget: time.Hour}, sandbox)
	program := programIn(t, engine, "shop", nestedEquality, `{}`)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(500*time.Millisecond, cancel)
	waiting := requests(pods(1))
	result, err := program.Evaluate(ctx, program.Stage(), rule.Environment{}, waiting)
	if got := result.Verdicts[waiting[0].Key()]; err != nil || got.Code != rule.CodeNotReached {
		t.Errorf("got %+v and error %v, want it not reached", got, err)
	}
	if sandbox.workers.isSuspect("shop", time.Now()) {
		t.Error("the namespace is suspected")
	}
}
