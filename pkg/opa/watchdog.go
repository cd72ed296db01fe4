package opa

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/podops-dev/podops/pkg/cputime"
	"github.com/podops-dev/podops/pkg/rule"
)

// answer is the result of one evaluation of a user's module. The goroutine that evaluates the
// module also reads its document, since reading a user's document can take as long as making it.
type answer struct {
	verdict rule.Verdict
	output  json.RawMessage

	// outputErr is the error of a verdict without output.
	outputErr error

	err error

	// used is the CPU time of the evaluation.
	used time.Duration
}

// busyFactor is how many times the limit on CPU time an evaluation may take in wall-clock time: a
// machine that gives it less than a tenth of a core is too busy to decide.
const busyFactor = 10

// evaluation is one evaluation of a user's module, in a goroutine of its own.
type evaluation struct {
	cancel  topdown.Cancel
	answers chan answer

	// watch measures the thread of the goroutine; nil before it runs. used is the CPU time once the
	// evaluation ended; 0 before.
	watch atomic.Pointer[cputime.Stopwatch]
	used  atomic.Int64
}

// start starts the evaluation of a module.
func (c *compiled) start(input ast.Value) *evaluation {
	e := &evaluation{cancel: topdown.NewCancel(), answers: make(chan answer, 1)}
	go func() {
		growStack(2)
		runtime.LockOSThread()
		watch := cputime.Start()
		e.watch.Store(&watch)
		given := c.decideCustom(e.cancel, input)
		e.used.Store(max(1, int64(watch.Used())))
		runtime.UnlockOSThread()
		given.used = e.cpuTime()
		e.answers <- given
	}()
	return e
}

// cpuTime returns how much CPU time the evaluation has used so far.
func (e *evaluation) cpuTime() time.Duration {
	if used := e.used.Load(); used > 0 {
		return time.Duration(used)
	}
	if watch := e.watch.Load(); watch != nil {
		return watch.Used()
	}
	return 0
}

// evaluateWatched evaluates a user's module, and returns at the limit of CPU time even if the evaluation
// has not ended. On a busy machine it returns errBusy after busyFactor times the limit in
// wall-clock time. The evaluation is then cancelled; if it does not end within a tenth of the
// limit, it is abandoned and counted as a runaway. Cancelling ctx cancels the evaluation; the
// deadline of ctx does not.
func (e *Engine) evaluateWatched(ctx context.Context, s *compiled, input ast.Value) answer {
	limit := e.options.CustomTimeout
	if err := s.runaways.refuses(limit); err != nil {
		return answer{err: err}
	}
	run := s.start(input)
	given, ended := run.wait(ctx, limit)
	if ended {
		return given
	}
	run.cancel.Cancel()
	grace := time.NewTimer(limit / 10)
	defer grace.Stop()
	select {
	case late := <-run.answers: // too late: the verdict is the timeout
		given.used = late.used
	case <-grace.C:
		given.used = run.cpuTime()
		e.leaveBehind(s.moduleInfo, run)
	}
	return given
}

// wait returns the answer of the evaluation and true, or the error that ended the wait and false.
func (e *evaluation) wait(ctx context.Context, limit time.Duration) (answer, bool) {
	began := time.Now()
	check := time.NewTimer(limit)
	defer check.Stop()
	stopped := ctx.Done()
	for {
		select {
		case given := <-e.answers:
			return given, true
		case <-check.C:
		case <-stopped:
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return answer{err: ctx.Err()}, false
			}
			stopped = nil
			continue
		}
		used := e.cpuTime()
		if used >= limit {
			return answer{err: fmt.Errorf("%w: it had %v", ErrTimeout, limit)}, false
		}
		if time.Since(began) >= busyFactor*limit {
			return answer{err: errBusy}, false
		}
		check.Reset(max(limit-used, minCheck))
	}
}

// minCheck is the shortest interval between two checks of the CPU time of an evaluation.
const minCheck = time.Millisecond

// runaways are the evaluations of one module that were cancelled and have not ended.
type runaways struct {
	mu      sync.Mutex
	running map[*evaluation]bool
}

// refuses returns why the module is not evaluated while an earlier evaluation runs, and nil if no
// earlier evaluation runs. An evaluation that has used twice its limit ignores its cancellation,
// which is the fault of the module; any other evaluation has not had the CPU time to end.
func (r *runaways) refuses(limit time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for run := range r.running {
		if run.cpuTime() >= 2*limit {
			return fmt.Errorf("%w: an earlier evaluation still runs, and the module is not evaluated before that ends", ErrTimeout)
		}
	}
	if len(r.running) > 0 {
		return errBusy
	}
	return nil
}

func (r *runaways) add(run *evaluation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running == nil {
		r.running = map[*evaluation]bool{}
	}
	r.running[run] = true
}

func (r *runaways) remove(run *evaluation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.running, run)
}

// leaveBehind counts a runaway until it ends.
func (e *Engine) leaveBehind(s *moduleInfo, run *evaluation) {
	s.runaways.add(run)
	e.runaways.Add(1)
	go func() {
		<-run.answers
		s.runaways.remove(run)
		e.runaways.Add(-1)
	}()
}

// growStack grows the stack of a new goroutine to a depth that is enough for most modules. OPA
// calls deeper with each expression, and each growth copies the whole stack, which costs more than
// the evaluation. A frame has the largest size that does not move to the heap.
//
//go:noinline
func growStack(frames int) {
	frame := [100 << 10]byte{}
	if frames > 1 {
		growStack(frames - 1)
	}
	runtime.KeepAlive(&frame)
}

// decideCustom evaluates the module and reads the decision. It does not panic.
func (c *compiled) decideCustom(cancel topdown.Cancel, input ast.Value) (given answer) {
	defer func() {
		if value := recover(); value != nil {
			given = answer{err: &PanicError{Value: value, Stack: debug.Stack()}}
		}
	}()
	// The context of the caller is not used: cancel alone ends the evaluation.
	term, err := evaluate(context.Background(), c.query, cancel, input, c.transaction(cancel, input)...)
	if err != nil {
		return answer{err: err}
	}
	given.verdict, given.err = decodeCustom(term)
	given.output, given.outputErr = canonical(term.Value, maxOutputBytes)
	return given
}
