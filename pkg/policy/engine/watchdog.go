package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/podops-dev/podops/pkg/policy"
)

// answer of a user's module: read from the document of OPA by the goroutine that evaluated it, since
// reading a document of a user can take as long as making it.
type answer struct {
	verdict policy.Verdict
	output  json.RawMessage

	// outputErr is why there is a verdict and no output.
	outputErr error

	err error
}

// askWatched evaluates a user's module in a goroutine of its own, and returns at the deadline
// whether or not that has ended. It is told to stop then; what does not obey within a tenth of the
// time it had is left behind and counted.
func (e *Engine) askWatched(ctx context.Context, s *shape, input ast.Value) answer {
	if s.runaways.Load() > 0 {
		return answer{err: fmt.Errorf("%w: an earlier evaluation still runs, and it is not asked before that ends", ErrTimeout)}
	}
	cancel := topdown.NewCancel()
	answers := make(chan answer, 1)
	go func() {
		growStack(2)
		answers <- s.ask(cancel, input)
	}()

	limit := e.options.CustomTimeout
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	var err error
	select {
	case given := <-answers:
		return given
	case <-deadline.C:
		err = fmt.Errorf("%w: it had %v", ErrTimeout, limit)
	case <-ctx.Done():
		err = ctx.Err()
	}
	cancel.Cancel()
	deadline.Reset(limit / 10)
	select {
	case <-answers: // too late to count
	case <-deadline.C:
		s.runaways.Add(1)
		e.runaways.Add(1)
		go func() {
			<-answers
			s.runaways.Add(-1)
			e.runaways.Add(-1)
		}()
	}
	return answer{err: err}
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
func (s *shape) ask(cancel topdown.Cancel, input ast.Value) (given answer) {
	defer func() {
		if value := recover(); value != nil {
			given = answer{err: &PanicError{Value: value, Stack: debug.Stack()}}
		}
	}()
	// The caller's context plays no part: cancel alone ends the evaluation.
	term, err := s.evaluate(context.Background(), cancel, input)
	if err != nil {
		return answer{err: err}
	}
	given.verdict, given.err = decodeCustom(term)
	given.output, given.outputErr = canonical(term.Value, maxOutputBytes)
	return given
}
