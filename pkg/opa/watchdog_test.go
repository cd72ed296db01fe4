package opa_test

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/podops-dev/podops/pkg/opa"
	"github.com/podops-dev/podops/pkg/rule"
	"github.com/podops-dev/podops/test/await"
)

// stuck returns a program that does not end for a request of stuckRequest before release is closed.
func stuck(t *testing.T, e *opa.Engine) (program *opa.Program, release chan struct{}) {
	t.Helper()
	release = make(chan struct{})
	program, err := e.PrepareStuck(t.Context(), custom(t, "package rule\n\nallow if true\n"), release)
	if err != nil {
		t.Fatal(err)
	}
	return program, release
}

func stuckRequest(i int) rule.Request {
	waits := request(i, true)
	waits.Pod.Labels["stuck"] = "true"
	waits.Pod.Version = ""
	return waits
}

// verdictOf returns the verdict of one request.
func verdictOf(ctx context.Context, t *testing.T, program *opa.Program, request rule.Request) rule.Verdict {
	t.Helper()
	result, err := program.Evaluate(ctx, program.Stage(), rule.Environment{}, []rule.Request{request})
	if err != nil {
		t.Error(err)
	}
	return result.Verdicts[request.Key()]
}

// TestRunawayModule checks that the verdict is given at the deadline although the module does not
// stop, that the module is not evaluated again while it runs, and that other modules are.
func TestRunawayModule(t *testing.T) {
	e := newEngine(t, opa.Options{CustomTimeout: 300 * time.Millisecond, RoundBudget: time.Minute, Concurrency: 1})
	program, release := stuck(t, e)
	var began time.Time
	var got rule.Verdict
	await.Until(t, "the module begins, although the machine is busy", func() bool {
		began = time.Now()
		got = verdictOf(t.Context(), t, program, stuckRequest(0))
		return got.Code != rule.CodeNotReached
	})
	if got.Code != rule.CodeTimeout || got.Outcome != rule.Withheld {
		t.Errorf("got %+v, want a timeout", got)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the verdict took %v", took)
	}
	if got := e.Runaways(); got != 1 {
		t.Errorf("%d runaways, want 1", got)
	}

	// Only after twice its time is the module at fault, and not the machine.
	await.Until(t, "the runaway is a timeout with a reason", func() bool {
		got = verdictOf(t.Context(), t, program, request(1, true))
		if got.Outcome != rule.Withheld {
			t.Fatalf("got %+v, want it withheld", got)
		}
		return got.Code == rule.CodeTimeout && strings.Contains(got.Message, "an earlier evaluation still runs")
	})
	healthy, err := e.Prepare(t.Context(), custom(t, "package rule\n\nallow if input.pod.ready == false\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := verdictOf(t.Context(), t, healthy, request(0, true)); got.Outcome != rule.Passed {
		t.Errorf("another module: got %+v, want it passed", got)
	}

	close(release)
	await.Until(t, "the runaway ends", func() bool { return e.Runaways() == 0 })
	if got := verdictOf(t.Context(), t, program, request(1, true)); got.Outcome != rule.Passed {
		t.Errorf("after the runaway: got %+v, want it passed", got)
	}
}

// TestCallerGivesUp checks that a cancelled caller returns at once, without a timeout of its
// module.
func TestCallerGivesUp(t *testing.T) {
	e := newEngine(t, opa.Options{CustomTimeout: 10 * time.Second, RoundBudget: time.Minute})
	program, release := stuck(t, e)
	defer close(release)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if got := verdictOf(ctx, t, program, stuckRequest(0)); got.Code != rule.CodeNotReached {
		t.Errorf("got %+v, want it not reached", got)
	}
}

// TestConcurrencyIsBounded checks that no more evaluations run at once than allowed. A rule without
// a slot in its round gets NotReached, and the wait does not count as its time.
func TestConcurrencyIsBounded(t *testing.T) {
	e := newEngine(t, opa.Options{CustomTimeout: time.Hour, RoundBudget: time.Second, Concurrency: 1})
	program, release := stuck(t, e)
	first := make(chan rule.Verdict, 1)
	go func() { first <- verdictOf(t.Context(), t, program, stuckRequest(0)) }()
	healthy, err := e.Prepare(t.Context(), custom(t, "package rule\n\nallow if input.pod.ready == false\n"))
	if err != nil {
		t.Fatal(err)
	}
	// Until the first evaluation has the only slot, another evaluation may take it.
	await.Until(t, "the slot is taken", func() bool {
		return verdictOf(t.Context(), t, healthy, request(0, true)).Code == rule.CodeNotReached
	})
	close(release)
	if got := await.Receive(t, "the first verdict", first); got.Outcome != rule.Passed {
		t.Errorf("the first: got %+v, want it passed", got)
	}
	if got := verdictOf(t.Context(), t, healthy, request(0, true)); got.Outcome != rule.Passed {
		t.Errorf("once there is a slot: got %+v, want it passed", got)
	}
}

// TestBusyMachine checks that a module without CPU time is withheld for this round, without a
// timeout.
func TestBusyMachine(t *testing.T) {
	e := newEngine(t, opa.Options{CustomTimeout: 20 * time.Millisecond, RoundBudget: time.Minute})
	release := make(chan struct{})
	program, err := e.PrepareStarved(t.Context(), custom(t, "package rule\n\nallow if true\n"), release)
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has clocks of threads")
	}
	for range 2 { // the second one finds the runaway of the first one
		if got := verdictOf(t.Context(), t, program, stuckRequest(0)); got.Code != rule.CodeNotReached || got.Outcome != rule.Withheld {
			t.Errorf("got %+v, want it withheld and not reached", got)
		}
	}
	close(release)
	await.Until(t, "the evaluation ends", func() bool { return e.Runaways() == 0 })
	if got := verdictOf(t.Context(), t, program, stuckRequest(0)); got.Outcome != rule.Passed {
		t.Errorf("with CPU time: got %+v, want it passed", got)
	}
}

// deadlined is a context whose deadline is passed when a channel is closed.
type deadlined struct {
	context.Context
	passed chan struct{}
}

func (d deadlined) Done() <-chan struct{} { return d.passed }

func (d deadlined) Err() error {
	select {
	case <-d.passed:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// TestDeadlineEndsBetweenRequests checks that the deadline of a round wastes no evaluation: the
// running one ends by itself, and the next one is not reached.
func TestDeadlineEndsBetweenRequests(t *testing.T) {
	e := newEngine(t, opa.Options{CustomTimeout: time.Minute, RoundBudget: time.Minute})
	ctx, release := deadlined{Context: t.Context(), passed: make(chan struct{})}, make(chan struct{})
	begun := sync.OnceFunc(func() { close(ctx.passed) })
	program, err := e.PrepareStuckAfter(t.Context(), custom(t, "package rule\n\nallow if true\n"), begun, release)
	if err != nil {
		t.Fatal(err)
	}
	context.AfterFunc(ctx, func() { close(release) })
	result, err := program.Evaluate(ctx, program.Stage(), rule.Environment{}, []rule.Request{stuckRequest(0), request(1, true)})
	if err != nil {
		t.Fatal(err)
	}
	if got := result.Verdicts[stuckRequest(0).Key()]; got.Outcome != rule.Passed {
		t.Errorf("the first: got %+v, want it passed", got)
	}
	if got := result.Verdicts[request(1, true).Key()]; got.Code != rule.CodeNotReached {
		t.Errorf("the second: got %+v, want it not reached", got)
	}
	if result.CPUTime <= 0 {
		t.Errorf("it used %v of CPU time", result.CPUTime)
	}
}

// TestSlowLaneLeavesRoom checks that evaluations in the slow lane wait for each other, and that
// another evaluation gets a slot meanwhile.
func TestSlowLaneLeavesRoom(t *testing.T) {
	e := newEngine(t, opa.Options{CustomTimeout: time.Hour, RoundBudget: time.Second, Concurrency: 2})
	program, release := stuck(t, e)
	slow := opa.WithSlowLane(t.Context())
	first := make(chan rule.Verdict, 1)
	go func() { first <- verdictOf(slow, t, program, stuckRequest(0)) }()
	healthy, err := e.Prepare(t.Context(), custom(t, "package rule\n\nallow if input.pod.ready == false\n"))
	if err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the slow lane is full", func() bool {
		return verdictOf(slow, t, healthy, request(0, true)).Code == rule.CodeNotReached
	})
	if got := verdictOf(t.Context(), t, healthy, request(0, true)); got.Outcome != rule.Passed {
		t.Errorf("beside the slow lane: got %+v, want it passed", got)
	}
	close(release)
	if got := await.Receive(t, "the first verdict", first); got.Outcome != rule.Passed {
		t.Errorf("the first: got %+v, want it passed", got)
	}
}
