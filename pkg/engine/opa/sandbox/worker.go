package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/podops-dev/podops/pkg/core/rule"
	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/runtime/text"
)

const (
	// busyFactor is how many times a limit on CPU time a worker may take in wall-clock time: a machine that
	// gives it less than a tenth of a core is too busy to decide.
	busyFactor = 10

	// compileLimit is the CPU time that a worker has to read a batch and to compile its module, and
	// compilePatience the wall-clock time.
	// Compiling a module of 15 KB takes 40 ms. Admission has half a second more for all modules of a request.
	compileLimit    = 2 * time.Second
	compilePatience = 2 * compileLimit

	// enoughToCompile is the CPU time from which a module that is late is too expensive also on a busy machine: 25 times the
	// need of a large one.
	enoughToCompile = compileLimit / 2
)

// errTooManyFacts means that a batch is too large to be sent.
var errTooManyFacts = errors.New("the facts that the module reads are too large")

const (
	// maxKeptFrame is the size of a buffer that a worker keeps from one batch to the next.
	maxKeptFrame = 256 << 10
)

// worker is a process that evaluates batches, as its parent sees it. It is used by one goroutine at a time.
type worker struct {
	command *exec.Cmd
	in, out *os.File
	frames  frames
	stderr  *capped
	began   time.Time
	watch   watch
	known   knownPods

	// ended is closed when the process was reaped.
	ended chan struct{}

	// frame is the buffer for batches.
	frame []byte

	// idle ends the process when it had nothing to do for some time.
	idle *time.Timer
}

// startWorker starts a worker.
func startWorker(line []string) (started *worker, err error) {
	childIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer closeIf(&err, in)
	defer childIn.Close()
	out, childOut, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer closeIf(&err, out)
	defer childOut.Close()
	w := &worker{
		command: newCommand(line),
		in:      in, out: out, frames: frames{from: out, most: maxAnswerBytes},
		stderr: &capped{most: maxStderrBytes}, ended: make(chan struct{}),
	}
	endWithParent(w.command)
	w.command.Stdin, w.command.Stdout, w.command.Stderr = childIn, childOut, w.stderr
	if err := w.command.Start(); err != nil {
		return nil, fmt.Errorf("starting a worker: %w", err)
	}
	w.began = time.Now()
	w.watch.used, w.watch.kill = w.used, w.kill
	go func() {
		defer close(w.ended)
		_ = w.command.Wait() // ProcessState contains how it ended
	}()
	return w, nil
}

// closeIf closes a file after an error.
func closeIf(err *error, file *os.File) {
	if *err != nil {
		_ = file.Close()
	}
}

// hasEnded reports whether the process has ended.
func (w *worker) hasEnded() bool {
	select {
	case <-w.ended:
		return true
	default:
		return false
	}
}

// used returns the CPU time of the process.
func (w *worker) used() time.Duration {
	if !w.hasEnded() {
		return cpuTime(w.command.Process.Pid, w.began)
	}
	return w.command.ProcessState.UserTime() + w.command.ProcessState.SystemTime()
}

// kill ends the process. Once it was reaped, another process may have its id.
func (w *worker) kill() {
	if !w.hasEnded() {
		_ = kill(w.command.Process) // it may end at the same time
	}
}

// end kills the process, and waits until it was reaped: until then it counts against the memory.
func (w *worker) end() {
	w.kill()
	<-w.ended
	_ = w.in.Close()
	_ = w.out.Close()
}

// evaluate sends a batch, which has a budget of wall-clock time, and receives its answers. The worker cannot be
// used again if it has failed.
func (w *worker) evaluate(ctx context.Context, batch opa.Batch, budget time.Duration) (given answers) {
	defer context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.Canceled) {
			w.kill()
		}
	})()
	if given.failure = w.send(batch, budget); given.failure != nil {
		return given
	}
	limits, before := allowance{cpu: compileLimit, latest: time.Now().Add(compilePatience)}, w.used()
	for {
		message, err := w.receive(limits)
		if err != nil {
			given.failure = err
			return given
		}
		done, err := given.take(message, max(len(batch.Requests), min(1, len(batch.Observed))))
		if done || err != nil {
			given.failure = err
			return given
		}
		if len(given.given) == 0 {
			given.compiling = w.used() - before
			limits = allowance{cpu: batch.Limit, latest: time.Now().Add(budget + busyFactor*batch.Limit)}
		}
	}
}

// inspect has the worker compile a module. It may be used for nothing else afterwards.
func (w *worker) inspect(ctx context.Context, source opa.Source, timeout time.Duration) (given answers) {
	defer context.AfterFunc(ctx, w.kill)()
	limits := allowance{cpu: compileLimit, latest: time.Now().Add(timeout)}
	if given.failure = w.write(append(newFrame(w.frame), requestInspection), limits, func(c *coder) { c.source(&source) }); given.failure != nil {
		return given
	}
	message, err := w.receive(limits)
	if given.ready = err == nil && bytes.Equal(message, []byte{messageReady}); given.ready {
		message, err = w.receive(limits)
	}
	if err != nil {
		given.failure = err
		return given
	}
	answer := response{}
	if len(message) == 0 || message[0] != messageInspected || json.Unmarshal(message[1:], &answer) != nil {
		given.failure = errUnexpected
		return given
	}
	given.inspection, given.err = answer.Inspection, responseError(answer)
	return given
}

// send sends a batch.
func (w *worker) send(batch opa.Batch, budget time.Duration) error {
	limits := allowance{cpu: compileLimit, latest: time.Now().Add(compilePatience)}
	return w.write(append(newFrame(w.frame), requestEvaluation), limits, func(c *coder) {
		number(c, &budget)
		c.batch(&batch)
	})
}

// write sends a message.
func (w *worker) write(frame []byte, limits allowance, value func(*coder)) error {
	writing := &coder{data: frame, known: &w.known}
	value(writing)
	w.frame = writing.data
	if size := len(w.frame) - headerBytes; size > maxBatchBytes {
		return fmt.Errorf("%w: %d bytes, and %d are allowed; read fewer pods, by a narrower selector of the PodTransitionRule",
			errTooManyFacts, size, maxBatchBytes)
	}
	w.watch.begin(limits)
	_, err := w.in.Write(sealed(w.frame))
	err = w.watch.end(err)
	if len(w.frame) > maxKeptFrame {
		w.frame = nil
	}
	if err != nil {
		return fmt.Errorf("%w: writing to a worker: %w", opa.ErrNotReached, err)
	}
	return nil
}

// receive waits for the next message until the allowance is used up.
func (w *worker) receive(limits allowance) ([]byte, error) {
	if message, missing, err := w.frames.buffered(); missing == 0 {
		return message, err
	}
	w.watch.begin(limits)
	message, err := w.frames.next()
	return message, w.watch.end(err)
}

// answers are the answers of one batch.
type answers struct {
	given []opa.Answer

	// inspection is the answer about a module, unless err is set.
	inspection opa.Inspection

	// err is why requests are left although the worker has not failed.
	err error

	// failure is why the worker cannot be used again. tired: it ends although it has not failed.
	failure error
	tired   bool

	// ready reports whether the module was compiled, in a CPU time of compiling, and its evaluation had begun.
	ready     bool
	compiling time.Duration
}

// errUnexpected means that a worker does not follow the protocol: a module has power over it.
var errUnexpected = errors.New("the worker sent an unexpected message")

// take reads one message, and reports whether it is the last one of the batch.
func (a *answers) take(message []byte, requests int) (done bool, err error) {
	if len(message) == 0 {
		return false, errUnexpected
	}
	received := &coder{reads: true, data: message[1:]}
	switch kind := message[0]; {
	case kind == messageReady && !a.ready:
		a.ready = true
		return false, received.end()
	case kind == messageAnswer && a.ready && len(a.given) < requests:
		answer := opa.Answer{}
		received.answer(&answer)
		if err := received.end(); err != nil {
			return false, err
		}
		a.given = append(a.given, checked(answer))
		return false, nil
	case kind == messageDone || kind == messageTired:
		a.tired = kind == messageTired
		if len(a.given) < requests {
			a.err = opa.ErrNotReached
		}
		return true, received.end()
	case kind == messageFailed:
		received.moduleError(&a.err)
		return true, received.end()
	default:
		return false, errUnexpected
	}
}

// checked returns an answer with the bounds of its parts: a worker is not trusted.
func checked(given opa.Answer) opa.Answer {
	verdict := &given.Verdict
	if verdict.Outcome != rule.Passed {
		verdict.Outcome = rule.Withheld
	}
	if verdict.Outcome == rule.Withheld && verdict.Code == "" {
		verdict.Code = rule.CodeUndefined
	}
	verdict.Code, verdict.Would = knownCode(verdict.Code), knownCode(verdict.Would)
	verdict.Message = text.Line(verdict.Message, rule.MaxMessageBytes)
	verdict.Details = text.Cut(verdict.Details, rule.MaxMessageBytes)
	verdict.RetryAfter = max(0, min(verdict.RetryAfter, opa.MaxRetryAfter))
	if len(given.Output) > 0 && !json.Valid(given.Output) {
		given.Output, given.OutputErr = nil, errMalformed
	}
	return given
}

// checkedError returns an error of a module with the bounds of its parts.
func checkedError(reported *opa.ModuleError) *opa.ModuleError {
	switch reported.Code {
	case rule.CodeEvaluationFailed, rule.CodeNotReached, rule.CodeUndefined:
	default:
		reported.Code = rule.CodeEvaluationFailed
	}
	reported.Message = text.Line(reported.Message, rule.MaxMessageBytes)
	reported.Text = text.Cut(reported.Text, maxProblemBytes)
	return reported
}

// knownCode returns a code that the verdict of a module may have, and CodeUndefined for any other.
func knownCode(code rule.Code) rule.Code {
	switch code {
	case "", rule.CodeNotAllowed, rule.CodeDenied, rule.CodeWrongType, rule.CodeUndefined:
		return code
	default:
		return rule.CodeUndefined
	}
}

// cause returns why a worker that has ended left requests of a batch, and whether the module is to blame. A
// failure of the machine proves nothing about a module.
func (w *worker) cause(ctx context.Context, given answers, limit time.Duration) (guilty bool, why error) {
	last := text.Line(w.stderr.firstLine(), rule.MaxMessageBytes/2)
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return false, opa.ErrNotReached
	case errors.Is(given.failure, opa.ErrNotReached), errors.Is(given.failure, errTooManyFacts):
		return false, given.failure
	case errors.Is(given.failure, errExpired) && given.ready:
		return true, fmt.Errorf("%w: it used up its CPU time of %v", opa.ErrTimeout, limit)
	case errors.Is(given.failure, errExpired):
		return true, fmt.Errorf("%w: it was not compiled within a CPU time of %v", opa.ErrTimeout, compileLimit)
	case strings.Contains(last, "stack exceeds"):
		return true, fmt.Errorf("%w: it used up its stack of %d MiB", opa.ErrTimeout, maxStackBytes>>20)
	case strings.Contains(last, "memory"):
		return true, fmt.Errorf("%w: it used up its memory of %d MiB", opa.ErrTimeout, ChildBytes>>20)
	case errors.Is(given.failure, io.EOF) && wasKilled(w.command.ProcessState):
		return false, fmt.Errorf("%w: the worker was killed from outside", opa.ErrNotReached)
	case given.ready:
		return true, fmt.Errorf("%w: the worker failed at the module (%w; %s)", opa.ErrTimeout, given.failure, last)
	default:
		return false, fmt.Errorf("%w: the worker failed before it read the module (%w; %s)", opa.ErrNotReached, given.failure, last)
	}
}
