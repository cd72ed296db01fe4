package operator

import (
	"context"
	"errors"
	"math"
	"runtime"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/podops-dev/podops/pkg/engine/opa/sandbox"
	"github.com/podops-dev/podops/pkg/runtime/loadshed"
	"github.com/podops-dev/podops/pkg/webhooks/inspection"
)

// LimitMemory sets GOMEMLIMIT of this process from the memory limit of its container, less the
// memory of the sandbox's child processes, and logs it. A GOMEMLIMIT of the environment wins.
func LimitMemory(log logr.Logger) {
	children := childrenBytes(workers(containerLimit(), runtime.GOMAXPROCS(0)))
	limit, err := memlimit.Set(memlimit.WithRatio(1), memlimit.WithProvider(heapLimit(memlimit.FromCgroup, children)))
	switch {
	case errors.Is(err, memlimit.ErrCgroupsNotSupported), errors.Is(err, memlimit.ErrNoCgroup):
		log.Info("Memory is not limited: there is no cgroup")
	case err != nil:
		log.Error(err, "Memory is not limited: the limit of the container cannot be read")
	case limit == math.MaxInt64:
		log.Info("Memory is not limited")
	default:
		log.Info("Memory limited", "gomemlimit", limit, "engine", engineBytes(limit), "children", children)
	}
}

// childrenBytes returns the memory of all child processes together.
func childrenBytes(workers int) uint64 { return uint64(sandbox.Children+workers) * sandbox.ChildBytes }

// mostWorkers bounds the processes that evaluate modules.
const mostWorkers = 8

// workers returns the number of processes that evaluate modules: together they take at most a quarter of the
// memory of the container if that is enough for one, and one core is left to the manager.
func workers(container uint64, cores int) int {
	return max(1, min(cores-1, mostWorkers, int(min(container/4/sandbox.ChildBytes, mostWorkers))))
}

// containerLimit returns the memory limit of the container; math.MaxInt64 without one.
func containerLimit() uint64 {
	limit, err := memlimit.FromCgroup()
	if err != nil {
		return math.MaxInt64 // LimitMemory logs the error
	}
	return limit
}

// heapLimit returns the part for Go of the limit that a provider returns: the rest after the child
// processes of the sandbox and a tenth for memory that the runtime does not count. In a container
// that is too small for that it is half of the limit.
func heapLimit(container memlimit.Provider, children uint64) memlimit.Provider {
	return func() (uint64, error) {
		limit, err := container()
		if err != nil {
			return 0, err
		}
		reserved := children + limit/10
		return limit - min(reserved, limit/2), nil
	}
}

// Bounds of the engine's memory.
const (
	leastEngineBytes = 32 << 20
	mostEngineBytes  = 512 << 20
)

// engineBytes returns the share of the policy engine in a GOMEMLIMIT; 0, its default, without a
// GOMEMLIMIT.
func engineBytes(limit int64) int64 {
	if limit == math.MaxInt64 {
		return 0
	}
	return min(max(limit/5, leastEngineBytes), mostEngineBytes)
}

// Bounds of the state that rules keep from one round to the next.
const (
	leastRuleBytes = 8 << 20
	mostRuleBytes  = 128 << 20
)

// ruleBytes returns the share of that state in a GOMEMLIMIT; 0, its default, without a GOMEMLIMIT.
func ruleBytes(limit int64) int64 {
	if limit == math.MaxInt64 {
		return 0
	}
	return min(max(limit/16, leastRuleBytes), mostRuleBytes)
}

// newGate returns a gate that admits requests as long as they fit into GOMEMLIMIT.
func newGate() *loadshed.Gate {
	return loadshed.New(loadshed.Options{Limit: memoryLimit()})
}

// memoryLimit returns GOMEMLIMIT; math.MaxInt64 means no limit.
func memoryLimit() int64 { return debug.SetMemoryLimit(-1) }

const (
	// expansion is the memory of an object during admission, as a multiple of its JSON: it is
	// decoded, copied, encoded twice and compared.
	expansion = 16

	// largePod is the size of the JSON from which a pod is large.
	largePod = 256 << 10
)

// gated is a Handler that responds with 429 when there is no memory for a request. It is for webhooks
// that receive controlled objects, and objects of PodOps, only: no other object depends on the memory
// of the manager.
type gated struct {
	admission.Handler
	gate *loadshed.Gate

	// least is the size from which requests are counted.
	least int
}

// Handle admits a request, or rejects it so that the client retries.
func (g gated) Handle(ctx context.Context, req admission.Request) admission.Response {
	bytes := len(req.Object.Raw) + len(req.OldObject.Raw)
	if bytes < g.least {
		return g.Handler.Handle(ctx, req)
	}
	leave, err := g.gate.Enter(int64(bytes) * expansion)
	if err != nil {
		full := &loadshed.FullError{}
		errors.As(err, &full)
		return inspection.TooManyRequests(err.Error(), full.RetryAfter)
	}
	defer leave()
	return g.Handler.Handle(ctx, req)
}
