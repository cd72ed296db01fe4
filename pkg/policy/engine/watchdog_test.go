package engine_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/podops-dev/podops/pkg/policy"
	"github.com/podops-dev/podops/pkg/policy/engine"
)

// stuck is a program that does not end for a request of stuckRequest before release is closed.
func stuck(t *testing.T, e *engine.Engine) (program *engine.Program, release chan struct{}) {
	t.Helper()
	release = make(chan struct{})
	program, err := e.PrepareStuck(t.Context(), custom(t, "package rule\n\nallow if true\n"), release)
	if err != nil {
		t.Fatal(err)
	}
	return program, release
}

func stuckRequest(i int) policy.Request {
	waits := request(i, true)
	waits.Pod.Labels["stuck"] = "true"
	waits.Pod.Version = ""
	return waits
}

// verdictOf one request.
func verdictOf(ctx context.Context, t *testing.T, program *engine.Program, request policy.Request) policy.Verdict {
	t.Helper()
	result, err := program.Evaluate(ctx, program.Stage(), policy.Surroundings{}, []policy.Request{request})
	if err != nil {
		t.Error(err)
	}
	return result.Verdicts[request.Key()]
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// The verdict is there at the deadline, although nothing stops the module. It is not asked again
// while it runs, other modules are, and when it ends it is asked as before.
func TestRunawayModule(t *testing.T) {
	e := newEngine(t, engine.Options{CustomTimeout: 300 * time.Millisecond, RoundBudget: time.Minute, Concurrency: 1})
	program, release := stuck(t, e)
	began := time.Now()
	got := verdictOf(t.Context(), t, program, stuckRequest(0))
	if got.Code != policy.CodeTimeout || got.Outcome != policy.Withheld {
		t.Errorf("got %+v, want a timeout", got)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the verdict took %v", took)
	}
	if got := e.Runaways(); got != 1 {
		t.Errorf("%d runaways, want 1", got)
	}

	got = verdictOf(t.Context(), t, program, request(1, true))
	if got.Code != policy.CodeTimeout || !strings.Contains(got.Message, "an earlier evaluation still runs") {
		t.Errorf("got %+v, want a timeout that says why", got)
	}
	healthy, err := e.Prepare(t.Context(), custom(t, "package rule\n\nallow if input.pod.ready == false\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := verdictOf(t.Context(), t, healthy, request(0, true)); got.Outcome != policy.Passed {
		t.Errorf("another module: got %+v, want it passed", got)
	}

	close(release)
	eventually(t, "the runaway ends", func() bool { return e.Runaways() == 0 })
	if got := verdictOf(t.Context(), t, program, request(1, true)); got.Outcome != policy.Passed {
		t.Errorf("after the runaway: got %+v, want it passed", got)
	}
}

// A caller that gives up is answered at once, and its module is not to blame.
func TestCallerGivesUp(t *testing.T) {
	e := newEngine(t, engine.Options{CustomTimeout: 100 * time.Millisecond, RoundBudget: time.Minute})
	program, release := stuck(t, e)
	defer close(release)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if got := verdictOf(ctx, t, program, stuckRequest(0)); got.Code != policy.CodeNotReached {
		t.Errorf("got %+v, want it not reached", got)
	}
}

// No more evaluations at once than allowed. A rule that gets no slot in its round says so, and the
// time that it waited is not its module's.
func TestConcurrencyIsBounded(t *testing.T) {
	e := newEngine(t, engine.Options{CustomTimeout: time.Hour, RoundBudget: 50 * time.Millisecond, Concurrency: 1})
	program, release := stuck(t, e)
	first := make(chan policy.Verdict)
	go func() { first <- verdictOf(t.Context(), t, program, stuckRequest(0)) }()
	healthy, err := e.Prepare(t.Context(), custom(t, "package rule\n\nallow if input.pod.ready == false\n"))
	if err != nil {
		t.Fatal(err)
	}
	// Until the first one has the only slot, there is room.
	eventually(t, "the slot is taken", func() bool {
		return verdictOf(t.Context(), t, healthy, request(0, true)).Code == policy.CodeNotReached
	})
	close(release)
	if got := <-first; got.Outcome != policy.Passed {
		t.Errorf("the first: got %+v, want it passed", got)
	}
	if got := verdictOf(t.Context(), t, healthy, request(0, true)); got.Outcome != policy.Passed {
		t.Errorf("once there is a slot: got %+v, want it passed", got)
	}
}
