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

// answer of a user's module: read from the document of OPA by the goroutine that evaluated it, since
// reading a document of a user can take as long as making it.
type answer struct {
	verdict rule.Verdict
	output  json.RawMessage

	// outputErr is why there is a verdict and no output.
	outputErr error

	err error

	// used is the CPU time that it took.
	used time.Duration
}

// busyFactor is how many times the limit on CPU time an evaluation may take on the wall: a
// machine that gives a tenth of a core is too busy to decide.
const busyFactor = 10

// evaluation of a user's module, in a goroutine of its own.
type evaluation struct {
	cancel  topdown.Cancel
	answers chan answer

	// watch measures the thread of the goroutine; nil before it runs. used is the CPU time in the
	// end; 0 before that.
	watch atomic.Pointer[cputime.Stopwatch]
	used  atomic.Int64
}

// start evaluates a module.
func (c *compiled) start(input ast.Value) *evaluation {
	e := &evaluation{cancel: topdown.NewCancel(), answers: make(chan answer, 1)}
	go func() {
		growStack(2)
		runtime.LockOSThread()
		watch := cputime.Start()
		e.watch.Store(&watch)
		given := c.ask(e.cancel, input)
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

// askWatched evaluates a user's module, and returns at its limit of CPU time whether or not that has
// ended. On a busy machine it returns errBusy after busyFactor times the limit on the wall. The
// evaluation is cancelled then; what does not end within a tenth of the limit is left behind and
// counted. Cancelling ctx cancels the evaluation; the deadline of ctx does not.
func (e *Engine) askWatched(ctx context.Context, s *compiled, input ast.Value) answer {
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
	case late := <-run.answers: // too late to count
		given.used = late.used
	case <-grace.C:
		given.used = run.cpuTime()
		e.leaveBehind(s.shape, run)
	}
	return given
}

// wait returns the answer of the evaluation and true, or why there is none and false.
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

// minCheck is the least time between two looks at the CPU time of an evaluation.
const minCheck = time.Millisecond

// runaways are the evaluations of one module that were cancelled and have not ended.
type runaways struct {
	mu      sync.Mutex
	running map[*evaluation]bool
}

// refuses returns why the module is not evaluated while an earlier evaluation runs, nil when none
// does. One that has used twice its limit does not obey its cancellation, which is the module's
// fault; any other has not had the CPU to end.
func (r *runaways) refuses(limit time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for run := range r.running {
		if run.cpuTime() >= 2*limit {
			return fmt.Errorf("%w: an earlier evaluation still runs, and it is not asked before that ends", ErrTimeout)
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

// leaveBehind counts an evaluation that does not end until it does.
func (e *Engine) leaveBehind(s *shape, run *evaluation) {
	s.runaways.add(run)
	e.runaways.Add(1)
	go func() {
		<-run.answers
		s.runaways.remove(run)
		e.runaways.Add(-1)
	}()
}

// growStack gives a new goroutine a stack that is deep enough for most modules. OPA calls deeper with
// each expression, and a stack that grows on the way is copied as a whole each time, which costs
// more than the evaluation. A frame is as large as one may be before it moves to the heap.
//
//go:noinline
func growStack(frames int) {
	frame := [100 << 10]byte{}
	if frames > 1 {
		growStack(frames - 1)
	}
	runtime.KeepAlive(&frame)
}

// ask evaluates and reads the decision. It does not panic.
func (c *compiled) ask(cancel topdown.Cancel, input ast.Value) (given answer) {
	defer func() {
		if value := recover(); value != nil {
			given = answer{err: &PanicError{Value: value, Stack: debug.Stack()}}
		}
	}()
	// The caller's context plays no part: cancel alone ends the evaluation.
	term, err := c.evaluate(context.Background(), cancel, input)
	if err != nil {
		return answer{err: err}
	}
	given.verdict, given.err = decodeCustom(term)
	given.output, given.outputErr = canonical(term.Value, maxOutputBytes)
	return given
}
