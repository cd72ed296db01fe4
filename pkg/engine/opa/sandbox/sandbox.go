package sandbox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"github.com/podops-dev/podops/pkg/engine/opa"
	"github.com/podops-dev/podops/pkg/engine/opa/vet"
	"github.com/podops-dev/podops/pkg/runtime/fairshare"
)

// CodeLimit is the code of the opa.Problem of a module whose compilation was killed.
const CodeLimit = "podops_compile_limit"

// Defaults of Options.
const (
	defaultTimeout    = 5 * time.Second
	defaultIdle       = time.Minute
	defaultRemembered = 4 << 20

	// Children is the default of how many run at the same time. Each takes up to ChildBytes of the
	// memory of the container.
	Children = 2

	// maxWaiting is how many checks for one owner may wait for a worker.
	maxWaiting = 64

	// waitDelay is the time for which the pipes of a worker that has ended may stay open.
	waitDelay = time.Second

	// maxStderrBytes is enough for the first line of a crash.
	maxStderrBytes = 4 << 10
)

// ErrNotStarted means that a process for modules could not be started.
var ErrNotStarted = fmt.Errorf("%w: a process for modules cannot be started", opa.ErrNotReached)

// Options configures a Sandbox. Fields that are zero take their defaults.
type Options struct {
	// Timeout is the time limit of a check in wall-clock time, including the start of its worker. Default: 5 s.
	Timeout time.Duration

	// Children is the number of checks that run at the same time. One owner uses at most
	// Children - 1 of them. Other checks wait. Default: 2.
	Children int

	// Workers is the number of workers that evaluate modules. Default: 1.
	Workers int

	// Turn is for how long a batch may hold a worker. The rest of a longer batch is not reached, and waits for
	// the worker again, behind other namespaces. Default: until the deadline of the batch.
	Turn time.Duration

	// Idle is for how long a worker without work is kept. Default: 1 minute.
	Idle time.Duration

	// Remembered bounds the bytes of the cached results, by module and schema. Owners share them
	// fairly. Default: 4 MiB, which is some thousand modules.
	Remembered int64
}

// Sandbox checks and evaluates users' modules in worker processes. It is safe for concurrent use.
type Sandbox struct {
	timeout time.Duration

	// slots are for the checks that may run at the same time.
	slots *fairshare.Slots

	// results are by the hash of module and schema.
	results *fairshare.Cache[resultKey, checkedModule]

	// workers evaluate modules.
	workers *pool

	// command returns the command line of a worker: this binary, except in tests.
	command func() ([]string, error)

	started atomic.Int64
}

// checkedModule is the result of checking a module: an inspection or problems.
type checkedModule struct {
	inspection opa.Inspection
	problems   *opa.CompileError
}

// resultKey is the hash of module and schema.
type resultKey [sha256.Size]byte

// New returns a Sandbox whose workers run the binary of this process.
func New(options Options) *Sandbox {
	children := cmp.Or(options.Children, Children)
	return &Sandbox{
		timeout: cmp.Or(options.Timeout, defaultTimeout),
		slots: fairshare.NewSlots(fairshare.SlotOptions{
			Slots: children, Each: max(1, children-1), Waiting: maxWaiting,
		}),
		results: fairshare.NewCache[resultKey, checkedModule](cmp.Or(options.Remembered, defaultRemembered)),
		workers: newPool(options),
		command: ownBinary,
	}
}

// workerArgument makes the binary a worker. It is not a flag, so that it appears in no help text.
const workerArgument = "podops-evaluate-modules"

// IsChild reports whether the arguments of a process belong to a worker of a Sandbox.
func IsChild(arguments []string) bool {
	return len(arguments) == 2 && arguments[1] == workerArgument
}

// ownBinary returns the command line of a worker.
func ownBinary() ([]string, error) {
	// A binary whose main function does not call Main would run as a manager and start more
	// workers.
	if IsChild(os.Args) {
		return nil, errors.New("this process is a worker itself: its main function must call Main")
	}
	path, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("looking for the binary of this process: %w", err)
	}
	return []string{path, workerArgument}, nil
}

// Check compiles a module in a worker, with the JSON schema of its parameters. Only the result stays
// in this process. spent is the CPU time of the worker, 0 if the result was cached.
//
// The error is an *opa.CompileError if the module is wrong: the error of opa.Inspect, or an error
// with CodeLimit if the worker used up its time, memory or stack. Any other error means that the module was
// not checked and must not be used; a retry may help. It wraps fairshare.ErrFull if too many checks
// of the owner wait. ctx ends the wait and the worker.
func (s *Sandbox) Check(ctx context.Context, source opa.Source) (spent time.Duration, err error) {
	_, spent, err = s.check(ctx, source)
	return spent, err
}

// Inspect is Check with the result for a module without problems. It implements opa.Workers.
func (s *Sandbox) Inspect(ctx context.Context, source opa.Source) (opa.Inspection, error) {
	found, _, err := s.check(ctx, source)
	return found, err
}

func (s *Sandbox) check(ctx context.Context, source opa.Source) (found opa.Inspection, spent time.Duration, err error) {
	if err := vet.CheckSize(source.Module); err != nil {
		return opa.Inspection{}, 0, err
	}
	key := newResultKey(source)
	if known, ok := s.results.Get(key); ok {
		return known.inspection, 0, errorOrNil(known.problems)
	}
	release, err := s.slots.Acquire(ctx, source.Owner)
	if err != nil {
		return opa.Inspection{}, 0, fmt.Errorf("checking a module: waiting for other checks: %w", err)
	}
	defer release()
	found, spent, err = s.run(ctx, source)
	problems := &opa.CompileError{}
	switch {
	case err == nil:
		s.results.Add(source.Owner, key, checkedModule{inspection: found}, problemBytes(found.Hints)+int64(len(source.Module)))
		return found, spent, nil
	case errors.As(err, &problems):
		s.results.Add(source.Owner, key, checkedModule{problems: problems}, problemBytes(problems.Problems))
		return opa.Inspection{}, spent, problems
	default:
		return opa.Inspection{}, spent, fmt.Errorf("checking a module: %w", err)
	}
}

// Known reports whether the result of a module is cached, so that Check starts no process. The inspection is that of a
// module without problems.
func (s *Sandbox) Known(source opa.Source) (found opa.Inspection, known bool) {
	result, known := s.results.Get(newResultKey(source))
	return result.inspection, known
}

// newResultKey returns the cache key for the result of a module.
func newResultKey(source opa.Source) resultKey {
	return sha256.Sum256(fmt.Appendf(nil, "%d\n%s%s", len(source.Module), source.Module, source.ParametersSchema))
}

// problemBytes returns the approximate memory of problems.
func problemBytes(problems []opa.Problem) int64 {
	const each = 80
	bytes := 0
	for _, problem := range problems {
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

// run compiles a module in a worker of its own.
func (s *Sandbox) run(ctx context.Context, source opa.Source) (found opa.Inspection, spent time.Duration, err error) {
	w, err := s.start()
	if err != nil {
		return found, 0, err
	}
	given := w.inspect(ctx, source, s.timeout)
	w.end()
	spent = w.used()
	switch guilty, why := w.cause(ctx, given, compileLimit); {
	case given.failure == nil:
		return given.inspection, spent, given.err
	case guilty:
		return found, spent, tooExpensive(why)
	case isLate(given.failure, ctx.Err()) && spent >= enoughToCompile:
		return found, spent, tooExpensive(fmt.Errorf("it was late, and had %v of CPU time", spent.Round(time.Millisecond)))
	case ctx.Err() != nil:
		return found, spent, ctx.Err()
	default:
		return found, spent, fmt.Errorf("%w, try again", why)
	}
}

// isLate reports whether a worker failed because the time of its caller, or its own, was over.
func isLate(failure, caller error) bool {
	return errors.Is(failure, errStarved) || errors.Is(caller, context.DeadlineExceeded)
}

// start starts a worker.
func (s *Sandbox) start() (*worker, error) {
	line, err := s.command()
	if err != nil {
		return nil, err
	}
	s.started.Add(1)
	w, err := startWorker(line)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotStarted, err)
	}
	return w, nil
}

// newCommand returns a command in a process group of its own, without environment but TZ: the time zone Local is UTC on every
// machine.
func newCommand(line []string) *exec.Cmd {
	command := exec.CommandContext(context.Background(), line[0], line[1:]...)
	if path, err := os.Executable(); err == nil && path == line[0] && runningBinary != "" {
		command.Path = runningBinary
	}
	isolate(command)
	command.Env, command.Dir, command.WaitDelay = []string{"TZ=UTC"}, "/", waitDelay
	return command
}

// tooExpensive returns the error of a module whose compilation has used up a limit.
func tooExpensive(why error) error {
	return &opa.CompileError{Problems: []opa.Problem{{
		Code: CodeLimit,
		Message: fmt.Sprintf("the compiler was not done: %s: the module takes too much time or memory to compile; "+
			"make it smaller, and build values that do not hold others several times over",
			strings.TrimPrefix(why.Error(), opa.ErrTimeout.Error()+": ")),
	}}}
}
