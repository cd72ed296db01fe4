package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/podops-dev/podops/pkg/opa"
)

// childArgument makes the binary a child. It is not a flag, so that it appears in no help text.
const childArgument = "podops-check-module"

// Limits of the child. Compiling a module of 15 KB takes 40 ms and 45 MB. All children together
// must fit into the memory limit of the manager's container.
const (
	maxCPUSeconds = 5

	// softDataBytes is the soft memory limit of the Go runtime, at which the garbage collector
	// works harder.
	softDataBytes = 64 << 20

	// maxStackBytes ends an endless recursion early.
	maxStackBytes = 64 << 20

	maxFiles = 16
)

// IsChild reports whether the arguments of a process belong to a child that Check has started.
func IsChild(arguments []string) bool {
	return len(arguments) == 2 && arguments[1] == childArgument
}

// Child reads a module from in, compiles it, and writes its problems to out. It sets limits on its
// process before it reads anything, and returns the exit code.
func Child(in io.Reader, out io.Writer) int {
	if err := limit(); err != nil {
		return answer(out, response{Done: true, Failure: fmt.Sprintf("setting limits: %v", err)})
	}
	received := request{}
	if err := json.NewDecoder(io.LimitReader(in, maxRequestBytes)).Decode(&received); err != nil {
		return answer(out, response{Done: true, Failure: fmt.Sprintf("reading the module: %v", err)})
	}
	return answer(out, responseOf(inspect(received)))
}

// limit sets the limits of the operating system and of the Go runtime on this process.
func limit() error {
	// One core, however much garbage a module makes.
	runtime.GOMAXPROCS(1)
	debug.SetMemoryLimit(softDataBytes)
	debug.SetMaxStack(maxStackBytes)
	return limitProcess()
}

func inspect(received request) error {
	inProcess, err := opa.New(opa.Options{Memory: 1})
	if err != nil {
		return err
	}
	_, err = inProcess.Inspect(context.Background(), opa.Source{Module: received.Source, ParametersSchema: received.ParametersSchema})
	return err
}

// answer writes a response. The parent treats a child without a response as failed, so an error
// needs only an exit code.
func answer(out io.Writer, given response) int {
	if err := json.NewEncoder(out).Encode(given); err != nil {
		return 1
	}
	return 0
}
