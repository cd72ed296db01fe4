package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/podops-dev/podops/pkg/engine/opa"
)

const (
	// cacheBytes bounds the compiled modules and the terms that a worker keeps from one batch to the next.
	cacheBytes = 20 << 20

	// softWorkerBytes is the soft memory limit of the Go runtime, until which garbage is collected rarely.
	softWorkerBytes     = 56 << 20
	collectAfterPercent = 400

	// maxStackBytes ends an endless recursion early.
	maxStackBytes = 64 << 20

	// tiredBytes is the memory from which a worker ends after a batch, so that a module which uses up the
	// memory of a worker has used at least half of it alone.
	tiredBytes = ChildBytes / 2
)

// Message kinds: the first byte that a worker receives.
const (
	requestInspection byte = iota + 1
	requestEvaluation
)

// Message kinds: the first byte that a worker sends.
const (
	// messageReady: the module is compiled, and is evaluated from now on.
	messageReady byte = iota + 1

	// messageAnswer has the answer for the next request.
	messageAnswer

	// messageDone ends a batch, and messageTired too: the worker ends as well.
	messageDone
	messageTired

	// messageFailed ends a batch with the error of its module or its documents.
	messageFailed

	// messageInspected has the result for a module that was to be compiled only.
	messageInspected
)

// Main is the main function of a worker. It compiles modules and evaluates batches that it reads from in, and writes the
// answers to out, until in ends. It sets limits on its process before it reads anything, and returns the exit code.
func Main(in io.Reader, out io.Writer) int {
	if err := limitWorker(); err != nil {
		fmt.Fprintf(os.Stderr, "setting limits: %v\n", err)
		return 1
	}
	engine, err := opa.New(opa.Options{Memory: cacheBytes})
	if err != nil {
		fmt.Fprintf(os.Stderr, "starting the policy engine: %v\n", err)
		return 1
	}
	batches := make(chan []byte)
	go func() {
		received := frames{from: in, most: maxBatchBytes}
		for {
			batch, err := received.next()
			if err != nil {
				// The parent has closed the pipe, or has ended. A module may be under evaluation,
				// which nothing else interrupts.
				os.Exit(0)
			}
			batches <- batch // the parent sends no other batch before this one is done
		}
	}()
	answers := &answering{out: out}
	for batch := range batches {
		if err := answers.answer(engine, batch); err != nil {
			fmt.Fprintf(os.Stderr, "answering: %v\n", err)
			return 1
		}
	}
	return 0
}

// limitWorker sets the limits of the operating system and of the Go runtime on this process.
func limitWorker() error {
	runtime.GOMAXPROCS(1)
	debug.SetMemoryLimit(softWorkerBytes)
	debug.SetGCPercent(collectAfterPercent)
	debug.SetMaxStack(maxStackBytes)
	debug.SetTraceback("none")
	// The runtime opens its event queue with the first timer, which the limit of files forbids.
	<-time.After(time.Microsecond)
	return limitProcess()
}

// answering writes messages to the parent, one at a time.
type answering struct {
	out   io.Writer
	frame []byte
	known knownPods
}

// answer answers one message. The error is one of the process, not of the module.
func (a *answering) answer(engine *opa.Engine, message []byte) error {
	if len(message) == 0 {
		return errMalformed
	}
	received := &coder{reads: true, data: message[1:], known: &a.known}
	if message[0] == requestInspection {
		return a.inspect(engine, received)
	}
	return a.evaluate(engine, received)
}

// inspect compiles a module.
func (a *answering) inspect(engine *opa.Engine, received *coder) error {
	source := opa.Source{}
	if received.source(&source); received.end() != nil {
		return received.end()
	}
	if err := a.send(messageReady, nil); err != nil {
		return err
	}
	found, err := json.Marshal(newResponse(engine.Inspect(context.Background(), source)))
	if err != nil {
		return err
	}
	return a.send(messageInspected, func(c *coder) { c.data = append(c.data, found...) })
}

// evaluate evaluates one batch.
func (a *answering) evaluate(engine *opa.Engine, received *coder) error {
	budget, batch := time.Duration(0), opa.Batch{}
	number(received, &budget)
	if received.batch(&batch); received.end() != nil {
		return received.end()
	}
	round, stop := context.WithCancel(context.Background())
	defer stop()
	ready := func() error {
		// From now on, the first request is evaluated in any case.
		round, stop = context.WithTimeout(round, budget)
		return a.send(messageReady, nil)
	}
	err := engine.EvaluateModule(round, batch, ready, func(given opa.Answer) error {
		return a.send(messageAnswer, func(c *coder) { c.answer(&given) })
	})
	switch {
	case err != nil:
		return a.send(messageFailed, func(c *coder) { c.moduleError(&err) })
	case memoryInUse() > tiredBytes:
		return a.send(messageTired, nil)
	default:
		return a.send(messageDone, nil)
	}
}

// send writes one message.
func (a *answering) send(kind byte, value func(*coder)) error {
	writing := &coder{data: append(newFrame(a.frame), kind)}
	if value != nil {
		value(writing)
	}
	a.frame = writing.data
	_, err := a.out.Write(sealed(a.frame))
	return err
}

// memoryInUse returns the memory that the Go runtime has mapped, which the operating system limits.
func memoryInUse() uint64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64()
}
