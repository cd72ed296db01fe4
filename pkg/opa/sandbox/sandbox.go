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

	"github.com/podops-dev/podops/pkg/fairshare"
	"github.com/podops-dev/podops/pkg/opa"
)

// CodeLimit is the code of the opa.Problem of a module whose compilation was killed.
const CodeLimit = "podops_compile_limit"

// Defaults of Options.
const (
	defaultTimeout    = 5 * time.Second
	defaultRemembered = 4 << 20

	// Children is the default of how many run at the same time. Each takes up to ChildBytes of the
	// memory of the container.
	Children = 2

	// maxWaiting is the number of checks of one owner that may wait for a child.
	maxWaiting = 64

	// waitDelay is the time for which the pipes of a child that has ended may stay open.
	waitDelay = time.Second

	// busyShare is the part of the timeout that a child must have computed for a timeout to be the
	// fault of the module: a second of the default, and ten times the need of the largest module.
	busyShare = 5

	// maxStderrBytes is enough for the first line of a crash.
	maxStderrBytes = 4 << 10
)

// ErrBusy means that a child had too little of the processors: its module may be good.
var ErrBusy = errors.New("the machine was too busy")

// ErrKilled means that a child was killed from outside, such as by the kernel when the memory of the container is used up: its
// module may be good.
var ErrKilled = errors.New("the compiler was killed before it was done, try again")

// Options configures a Sandbox. Fields that are zero take their defaults.
type Options struct {
	// Timeout is the time limit of a child, including its start. Default: 5 s.
	Timeout time.Duration

	// Children is the number of children that run at the same time. One owner uses at most
	// Children - 1 of them. Other checks wait. Default: 2.
	Children int

	// Remembered bounds the bytes of the cached results, by module and schema. Owners share them
	// fairly. Default: 4 MiB, which is some 10,000 modules without problems.
	Remembered int64
}

// Sandbox checks users' modules in child processes. It is safe for concurrent use.
type Sandbox struct {
	timeout time.Duration

	// slots are for the children that may run at the same time.
	slots *fairshare.Slots

	// results are by the hash of module and schema; nil for a module without problems.
	results *fairshare.Cache[resultKey, *opa.CompileError]

	// command returns the command line of a child: this binary, except in tests.
	command func() ([]string, error)

	started atomic.Int64
}

// resultKey is the hash of module and schema.
type resultKey [sha256.Size]byte

// New returns a Sandbox whose children run the binary of this process.
func New(options Options) *Sandbox {
	children := cmp.Or(options.Children, Children)
	return &Sandbox{
		timeout: cmp.Or(options.Timeout, defaultTimeout),
		slots: fairshare.NewSlots(fairshare.SlotOptions{
			Slots: children, Each: max(1, children-1), Waiting: maxWaiting,
		}),
		results: fairshare.NewCache[resultKey, *opa.CompileError](cmp.Or(options.Remembered, defaultRemembered)),
		command: ownBinary,
	}
}

// ownBinary returns the command line of a child.
func ownBinary() ([]string, error) {
	// A binary whose main function does not call Child would run as a manager and start more
	// children.
	if IsChild(os.Args) {
		return nil, errors.New("this process is a child itself: its main function must call Child")
	}
	path, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("looking for the binary of this process: %w", err)
	}
	return []string{path, childArgument}, nil
}

// Check compiles a module in a child, with the JSON schema of its parameters. Only the result stays
// in this process. spent is the CPU time of the child, 0 if the result was cached.
//
// The error is an *opa.CompileError if the module is wrong: the error of opa.Inspect, or an error
// with CodeLimit if the child used up its time or memory. Any other error means that the module was
// not checked and must not be used; a retry may help. It wraps fairshare.ErrFull if too many checks
// of the owner wait. ctx ends the wait and the child.
func (s *Sandbox) Check(ctx context.Context, source opa.Source) (spent time.Duration, err error) {
	encodedRequest, key, err := encoded(source)
	if err != nil {
		return 0, err
	}
	if known, ok := s.results.Get(key); ok {
		return 0, errorOrNil(known)
	}
	release, err := s.slots.Acquire(ctx, source.Owner)
	if err != nil {
		return 0, fmt.Errorf("checking a module: waiting for other checks: %w", err)
	}
	defer release()
	spent, err = s.run(ctx, encodedRequest)
	problems := &opa.CompileError{}
	switch {
	case err == nil:
		s.results.Add(source.Owner, key, nil, 0)
		return spent, nil
	case errors.As(err, &problems):
		s.results.Add(source.Owner, key, problems, bytesOf(problems))
		return spent, problems
	default:
		return spent, fmt.Errorf("checking a module: %w", err)
	}
}

// Precompile is Check with the signature of opa.Options.Precompile.
func (s *Sandbox) Precompile(ctx context.Context, source opa.Source) error {
	_, err := s.Check(ctx, source)
	return err
}

// Known reports whether the result of a module is cached, so that Check starts no child.
func (s *Sandbox) Known(source opa.Source) bool {
	_, key, err := encoded(source)
	if err != nil {
		return false
	}
	_, known := s.results.Get(key)
	return known
}

// encoded returns the request to a child, and the cache key of its result.
func encoded(source opa.Source) ([]byte, resultKey, error) {
	encodedRequest, err := json.Marshal(request{Source: source.Module, ParametersSchema: source.ParametersSchema})
	if err != nil {
		return nil, resultKey{}, fmt.Errorf("checking a module: %w", err)
	}
	return encodedRequest, sha256.Sum256(encodedRequest), nil
}

// bytesOf returns the approximate memory of problems.
func bytesOf(problems *opa.CompileError) int64 {
	const each = 80
	bytes := 0
	for _, problem := range problems.Problems {
		bytes += each + len(problem.Code) + len(problem.File) + len(problem.Message)
	}
	return int64(bytes)
}

// errorOrNil keeps a nil pointer from becoming a non-nil error.
func errorOrNil(problems *opa.CompileError) error {
	if problems == nil {
		return nil
	}
	return problems
}

// run starts one child and waits for it.
func (s *Sandbox) run(ctx context.Context, encodedRequest []byte) (spent time.Duration, err error) {
	line, err := s.command()
	if err != nil {
		return 0, err
	}
	limited, stop := context.WithTimeout(ctx, s.timeout)
	defer stop()
	stdout, stderr := capped{most: maxResponseBytes}, capped{most: maxStderrBytes}
	command := exec.CommandContext(limited, line[0], line[1:]...)
	isolate(command)
	command.Env, command.Dir = []string{}, "/"
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(encodedRequest), &stdout, &stderr
	command.WaitDelay = waitDelay

	s.started.Add(1)
	if err := command.Start(); err != nil {
		return 0, fmt.Errorf("starting a child process: %w", err)
	}
	ended := command.Wait()
	state := command.ProcessState
	spent = state.UserTime() + state.SystemTime()
	given := response{}
	if ended == nil && !stdout.cut && json.Unmarshal(stdout.kept, &given) == nil && given.Done {
		return spent, errorOf(given)
	}
	if ctx.Err() != nil {
		return spent, ctx.Err()
	}
	if limited.Err() != nil && spent < s.timeout/busyShare {
		return spent, fmt.Errorf("%w to compile it within %v, try again", ErrBusy, s.timeout)
	}
	if wasKilled(state) && limited.Err() == nil && spent < maxCPUSeconds*time.Second {
		return spent, ErrKilled
	}
	return spent, tooExpensive(limited.Err() != nil, s.timeout, stderr.firstLine())
}

// tooExpensive returns the error of a module whose child was killed or crashed.
func tooExpensive(late bool, timeout time.Duration, last string) error {
	why := fmt.Sprintf("the compiler ended before it was done (%s)", cmp.Or(last, "it was killed"))
	if late {
		why = fmt.Sprintf("the compiler was not done after %v", timeout)
	}
	return &opa.CompileError{Problems: []opa.Problem{{
		Code: CodeLimit,
		Message: why + ": the module takes too much time or memory to compile; " +
			"make it smaller, and build values that do not hold others several times over",
	}}}
}
