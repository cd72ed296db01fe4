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

// childArgument makes the binary a child. It is no flag: nobody should find it in a help text.
const childArgument = "podops-check-module"

// Limits of the child. Compiling a module of 15 KB takes 40 ms and 45 MB. All children together must
// fit into the memory of the manager, which would be killed with them.
const (
	maxCPUSeconds = 5

	// softDataBytes is where the garbage collector starts to work harder.
	softDataBytes = 64 << 20

	// maxStackBytes turns an endless recursion into a quick end.
	maxStackBytes = 64 << 20

	maxFiles = 16
)

// IsChild says whether the arguments of a process are those of a child that Check has started.
func IsChild(arguments []string) bool {
	return len(arguments) == 2 && arguments[1] == childArgument
}

// Child reads a module from in, compiles it, and writes what is wrong with it to out. It returns the
// exit code of the process, on which it sets limits before it reads anything.
func Child(in io.Reader, out io.Writer) int {
	if err := limit(); err != nil {
		return answer(out, response{Done: true, Failure: fmt.Sprintf("setting limits: %v", err)})
	}
	asked := request{}
	if err := json.NewDecoder(io.LimitReader(in, maxRequestBytes)).Decode(&asked); err != nil {
		return answer(out, response{Done: true, Failure: fmt.Sprintf("reading the module: %v", err)})
	}
	return answer(out, responseOf(inspect(asked)))
}

// limit sets limits on this process, by means of the system and of the Go runtime.
func limit() error {
	// One core, whatever a module makes the garbage collector do.
	runtime.GOMAXPROCS(1)
	debug.SetMemoryLimit(softDataBytes)
	debug.SetMaxStack(maxStackBytes)
	return limitProcess()
}

func inspect(asked request) error {
	inProcess, err := opa.New(opa.Options{Memory: 1})
	if err != nil {
		return err
	}
	_, err = inProcess.Inspect(context.Background(), opa.Source{Module: asked.Source, ParametersSchema: asked.ParametersSchema})
	return err
}

// answer writes a response. Without one the parent takes the child for dead, so an error has no
// other consequence than the exit code.
func answer(out io.Writer, given response) int {
	if err := json.NewEncoder(out).Encode(given); err != nil {
		return 1
	}
	return 0
}
