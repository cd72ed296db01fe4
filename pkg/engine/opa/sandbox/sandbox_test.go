package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/runtime/fairshare"
	"github.com/podops-dev/podops/test/await"
)

const fine = "package rule\n\nallow if input.pod.ready\n"

const (
	// patience bounds the wait for a child on a machine whose processors other tests use as well.
	patience = 2 * time.Minute
)

// TestInspectEqualsThisProcess checks that a worker returns the same inspection and problems as this process, word for
// word.
func TestInspectEqualsThisProcess(t *testing.T) {
	inProcess, err := opa.New(opa.Options{})
	if err != nil {
		t.Fatal(err)
	}
	sandbox := New(Options{Timeout: patience})
	for name, tc := range map[string]struct {
		source string
		schema json.RawMessage
	}{
		"a module without errors": {source: fine},
		"a syntax error":          {source: "package rule\n\nallow if {\n"},
		"type errors":             {source: "package rule\n\nallow if input.pod.lables.a == \"b\"\n\nallow if input.pod.ready == 1\n"},
		"an unknown builtin":      {source: "package rule\n\nallow if http.send({}).ok\n"},
		"another package":         {source: "package podops.rules\n\nallow if true\n"},
		"hints and parameters":    {source: "package rule\n\nallow if {\n\tinput.parameters.limit > 3\n\tinput.pod.labels.weight > 5\n}\n"},
		"a parameter that the schema has": {
			source: "package rule\n\nallow if input.parameters.zone == input.pod.node\n",
			schema: json.RawMessage(`{"type": "object", "properties": {"zone": {"type": "string"}}}`),
		},
		"a parameter that the schema does not have": {
			source: "package rule\n\nallow if input.parameters.zoen == input.pod.node\n",
			schema: json.RawMessage(`{"type": "object", "properties": {"zone": {"type": "string"}}}`),
		},
	} {
		t.Run(name, func(t *testing.T) {
			want, wantErr := inProcess.Inspect(t.Context(), opa.Source{Module: tc.source, ParametersSchema: tc.schema})
			got, err := sandbox.Inspect(t.Context(), opa.Source{Module: tc.source, ParametersSchema: tc.schema})
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("inspection (-in process +worker):\n%s", diff)
			}
			if diff := cmp.Diff(problemsOf(wantErr), problemsOf(err)); diff != "" {
				t.Errorf("problems (-in process +worker):\n%s", diff)
			}
		})
	}
}

func TestKilled(t *testing.T) {
	for name, want := range map[string]string{
		"loops":     "its CPU time of 2s",
		"allocates": "its memory of",
		"floods":    "too large",
		// A stack grows by copies: with the rest of the heap it may reach the limit of memory first.
		"recurses":       "its (stack|memory) of",
		"writes nothing": "EOF",
		"talks nonsense": "unexpected message",
	} {
		t.Run(name, func(t *testing.T) {
			sandbox := New(Options{Timeout: patience})
			sandbox.command = misbehaving("ready, " + name)
			err := opa.ErrNotReached
			for tries := 0; errors.Is(err, opa.ErrNotReached) && tries < busyTries; tries++ {
				err = check(t, sandbox, opa.Source{Module: fine})
			}
			problems := problemsOf(err)
			if len(problems) != 1 || problems[0].Code != CodeLimit || !regexp.MustCompile(want).MatchString(problems[0].Message) {
				t.Errorf("got problems %+v, want one with code %s and %q", problems, CodeLimit, want)
			}
		})
	}
}

// TestBusyMachine has a child that is late without computing: the module may be good.
func TestBusyMachine(t *testing.T) {
	sandbox := New(Options{Timeout: 300 * time.Millisecond})
	sandbox.command = misbehaving("sleeps")
	for range 2 {
		err := check(t, sandbox, opa.Source{Module: fine})
		if err == nil || len(problemsOf(err)) > 0 || !strings.Contains(err.Error(), "try again") {
			t.Errorf("got error %v, want one that is not about the module", err)
		}
	}
	if started := sandbox.started.Load(); started != 2 {
		t.Errorf("started %d children for two checks, want 2: such an error is not cached", started)
	}
}

func TestIsLate(t *testing.T) {
	for name, tc := range map[string]struct {
		failure, caller error
		want            bool
	}{
		"the machine is too busy":       {failure: errStarved, want: true},
		"the caller has no more time":   {failure: io.EOF, caller: context.DeadlineExceeded, want: true},
		"the caller waits no longer":    {failure: io.EOF, caller: context.Canceled},
		"the worker is killed":          {failure: io.EOF},
		"the worker reports a failure":  {failure: errUnexpected},
		"the worker needs too much CPU": {failure: errExpired},
	} {
		if got := isLate(tc.failure, tc.caller); got != tc.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

// TestKilledFromOutside has a child that the kernel kills for want of memory: the module may be good, in every namespace.
func TestKilledFromOutside(t *testing.T) {
	sandbox := New(Options{Timeout: patience})
	sandbox.command = misbehaving("is killed")
	for range 2 {
		if err := check(t, sandbox, opa.Source{Module: fine}); !errors.Is(err, opa.ErrNotReached) || len(problemsOf(err)) > 0 {
			t.Errorf("got error %v, want one that is not about the module", err)
		}
	}
	if started := sandbox.started.Load(); started != 2 {
		t.Errorf("started %d children for two checks, want 2: such an error is not cached", started)
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	sandbox := New(Options{})
	sandbox.command = misbehaving("sleeps")
	if _, err := sandbox.Check(ctx, opa.Source{Module: fine}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got error %v, want the one of the context", err)
	}
}

// TestGroupIsKilled checks that the processes that a child has started die with it.
func TestGroupIsKilled(t *testing.T) {
	directory := t.TempDir()
	sandbox := New(Options{Timeout: patience})
	sandbox.command = misbehaving("has children", directory)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	checked := make(chan error, 1)
	go func() {
		_, err := sandbox.Check(ctx, opa.Source{Module: fine})
		checked <- err
	}()
	pid := 0
	await.Until(t, "a grandchild runs", func() bool {
		entries, err := os.ReadDir(directory)
		if err != nil || len(entries) == 0 {
			return false
		}
		pid, err = strconv.Atoi(entries[0].Name())
		return err == nil
	})
	cancel()
	if err := await.Receive(t, "the check ends", checked); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want the one of the context", err)
	}
	await.Until(t, "the grandchild is dead", func() bool { return !isRunning(pid) })
}

func TestRemembered(t *testing.T) {
	sandbox := New(Options{Timeout: patience, Remembered: 2*fairshare.EntryBytes + 600})
	wrong := "package rule\n\nallow if input.pod.lables.a\n"
	for range 3 {
		if err := check(t, sandbox, opa.Source{Module: fine}); err != nil {
			t.Errorf("got error %v of a module without one", err)
		}
		if err := check(t, sandbox, opa.Source{Module: wrong}); len(problemsOf(err)) != 1 {
			t.Errorf("got error %v, want a compile error", err)
		}
	}
	if started := sandbox.started.Load(); started != 2 {
		t.Errorf("started %d children for two modules, want 2", started)
	}
	if err := check(t, sandbox, opa.Source{Module: fine + "\n"}); err != nil {
		t.Error(err)
	}
	if err := check(t, sandbox, opa.Source{Module: fine}); err != nil {
		t.Error(err)
	}
	if started := sandbox.started.Load(); started != 4 {
		t.Errorf("started %d children, want 4: no more than two results fit", started)
	}
}

func TestChildrenAreFew(t *testing.T) {
	sandbox := New(Options{Timeout: 400 * time.Millisecond, Children: 3})
	sandbox.command = misbehaving("sleeps")
	start := time.Now()
	checks := sync.WaitGroup{}
	for range 4 {
		checks.Go(func() {
			if check(t, sandbox, opa.Source{Module: fine}) == nil {
				t.Error("got no error")
			}
		})
	}
	checks.Wait()
	if took := time.Since(start); took < 800*time.Millisecond {
		t.Errorf("4 children of 400 ms each took %v: more than two ran at once", took)
	}
}

func TestNotStarted(t *testing.T) {
	sandbox := New(Options{})
	sandbox.command = func() ([]string, error) { return []string{"/no/such/file"}, nil }
	if err := check(t, sandbox, opa.Source{Module: fine}); err == nil || len(problemsOf(err)) > 0 {
		t.Errorf("got error %v, want one that is not about the module", err)
	}
}

// check returns the error of Check.
func check(t *testing.T, sandbox *Sandbox, source opa.Source) error {
	t.Helper()
	_, err := sandbox.Check(t.Context(), source)
	return err
}

func misbehaving(how string, arguments ...string) func() ([]string, error) {
	return func() ([]string, error) {
		path, err := os.Executable()
		return append([]string{path, "child:" + how}, arguments...), err
	}
}

// problemsOf returns the problems of an error; nil if it is not a compile error.
func problemsOf(err error) []opa.Problem {
	found := &opa.CompileError{}
	if !errors.As(err, &found) {
		return nil
	}
	return found.Problems
}

// isRunning reports whether a process runs; a zombie does not.
func isRunning(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(status), ") Z ")
}

// TestAnOwnerLeavesAChildToOthers checks that the check of one namespace is next, however many
// checks of another owner wait.
func TestAnOwnerLeavesAChildToOthers(t *testing.T) {
	sandbox := New(Options{Timeout: time.Minute})
	begun, release, second := make(chan struct{}), make(chan struct{}), atomic.Bool{}
	sandbox.command = func() ([]string, error) {
		if second.Swap(true) {
			return ownBinary()
		}
		close(begun)
		<-release
		return nil, errors.New("no binary")
	}
	greedy := opa.Source{Owner: "greedy", Module: fine}
	ctx, cancel := context.WithCancel(t.Context())
	checks := sync.WaitGroup{}
	for range maxWaiting {
		checks.Go(func() { _, _ = sandbox.Check(ctx, greedy) })
	}
	await.Receive(t, "a check begins", begun) // one of them has a child
	if _, err := sandbox.Check(t.Context(), opa.Source{Owner: "quiet", Module: fine}); err != nil {
		t.Errorf("got %v", err)
	}
	cancel()
	close(release)
	checks.Wait()
}

// TestResultsAreBoundedInBytes has modules with many problems with long messages.
func TestResultsAreBoundedInBytes(t *testing.T) {
	problems := &opa.CompileError{}
	for range 1000 {
		problems.Problems = append(problems.Problems, opa.Problem{Code: "rego_type_error", Message: strings.Repeat("x", 10000)})
	}
	found := &opa.CompileError{}
	if !errors.As(responseError(newResponse(opa.Inspection{}, problems)), &found) {
		t.Fatal("the problems are lost")
	}
	if got := problemBytes(found.Problems); got > 40<<10 {
		t.Errorf("the result of one module takes %d bytes", got)
	}
}
