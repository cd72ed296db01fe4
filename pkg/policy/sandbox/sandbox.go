package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"time"

	"k8s.io/utils/lru"

	"github.com/podops-dev/podops/pkg/policy/engine"
)

// CodeLimit is the code of the engine.Problem of a module whose compilation had to be killed.
const CodeLimit = "podops_compile_limit"

// Defaults of Options.
const (
	defaultTimeout    = 5 * time.Second
	defaultChildren   = 2
	defaultRemembered = 1024

	// waitDelay is how long the pipes of a dead child may stay open.
	waitDelay = time.Second

	// busyShare is the part of the timeout that a child must have computed for a timeout to be its own
	// fault: a second of the default, and ten times what the largest module needs.
	busyShare = 5

	// maxStderrBytes is enough for the first line of a crash.
	maxStderrBytes = 4 << 10
)

// Options of a Sandbox. Fields that are zero take their defaults.
type Options struct {
	// Timeout is how long a child may take, starting included. Default: 5 s.
	Timeout time.Duration

	// Children is how many run at the same time; others wait for them. Default: 2.
	Children int

	// Remembered is how many results are remembered, by module and schema. Default: 1024.
	Remembered int
}

// Sandbox checks the modules of users in child processes. It is safe for concurrent use.
type Sandbox struct {
	timeout time.Duration

	// slots has room for as many children as may run at the same time.
	slots chan struct{}

	// results holds error by the hash of module and schema; nil and *engine.CompileError only.
	results *lru.Cache

	// command starts a child; the binary itself, but in tests.
	command func() ([]string, error)

	started atomic.Int64
}

// New returns a Sandbox whose children run the binary of this process.
func New(options Options) *Sandbox {
	return &Sandbox{
		timeout: cmp.Or(options.Timeout, defaultTimeout),
		slots:   make(chan struct{}, cmp.Or(options.Children, defaultChildren)),
		results: lru.New(cmp.Or(options.Remembered, defaultRemembered)),
		command: ownBinary,
	}
}

// ownBinary is the command line of a child.
func ownBinary() ([]string, error) {
	// A binary that does not know of children would do what it always does, and start more of them.
	if IsChild(os.Args) {
		return nil, errors.New("this process is a child itself: its main function must call Child")
	}
	path, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("looking for the binary of this process: %w", err)
	}
	return []string{path, childArgument}, nil
}

// Check compiles a module in a child, with the JSON schema of its parameters (nil: open). It is what
// engine.Options.Precompile asks for.
//
// The error is an *engine.CompileError if the module is wrong: the one that engine.Inspect gives,
// or one with CodeLimit if the child used up its time or memory. Any other error says that nothing
// is known of the module, which must not be used then; trying again may help. ctx ends the wait and
// the child.
func (s *Sandbox) Check(ctx context.Context, source string, parametersSchema json.RawMessage) error {
	asked, err := json.Marshal(request{Source: source, ParametersSchema: parametersSchema})
	if err != nil {
		return fmt.Errorf("checking a module: %w", err)
	}
	key := sha256.Sum256(asked)
	if known, ok := s.results.Get(key); ok {
		problems, _ := known.(*engine.CompileError)
		return errorOrNil(problems)
	}
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return fmt.Errorf("checking a module: waiting for other checks: %w", ctx.Err())
	}
	err = s.run(ctx, asked)
	problems := &engine.CompileError{}
	switch {
	case err == nil:
		s.results.Add(key, (*engine.CompileError)(nil))
		return nil
	case errors.As(err, &problems):
		s.results.Add(key, problems)
		return problems
	default:
		return fmt.Errorf("checking a module: %w", err)
	}
}

// errorOrNil keeps a nil pointer from becoming an error that is not nil.
func errorOrNil(problems *engine.CompileError) error {
	if problems == nil {
		return nil
	}
	return problems
}

// run asks one child.
func (s *Sandbox) run(ctx context.Context, asked []byte) error {
	line, err := s.command()
	if err != nil {
		return err
	}
	limited, stop := context.WithTimeout(ctx, s.timeout)
	defer stop()
	stdout, stderr := capped{most: maxResponseBytes}, capped{most: maxStderrBytes}
	command := exec.CommandContext(limited, line[0], line[1:]...)
	isolate(command)
	command.Env, command.Dir = []string{}, "/"
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(asked), &stdout, &stderr
	command.WaitDelay = waitDelay

	s.started.Add(1)
	if err := command.Start(); err != nil {
		return fmt.Errorf("starting a child process: %w", err)
	}
	ended := command.Wait()
	given := response{}
	if ended == nil && !stdout.cut && json.Unmarshal(stdout.kept, &given) == nil && given.Done {
		return errorOf(given)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	state := command.ProcessState
	used := state.UserTime() + state.SystemTime()
	if limited.Err() != nil && used < s.timeout/busyShare {
		return fmt.Errorf("the machine was too busy to compile it within %v, try again", s.timeout)
	}
	return tooExpensive(limited.Err() != nil, s.timeout, stderr.firstLine())
}

// tooExpensive is the error of a module that a child died of.
func tooExpensive(late bool, timeout time.Duration, last string) error {
	why := fmt.Sprintf("the compiler ended before it was done (%s)", cmp.Or(last, "it was killed"))
	if late {
		why = fmt.Sprintf("the compiler was not done after %v", timeout)
	}
	return &engine.CompileError{Problems: []engine.Problem{{
		Code: CodeLimit,
		Message: why + ": the module takes too much time or memory to compile; " +
			"make it smaller, and build values that do not hold others several times over",
	}}}
}
